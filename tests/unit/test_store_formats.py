"""Data folders of every format version open with the answers they had; those of a newer release are refused and left as they are."""

import json
import struct
import tarfile
from pathlib import Path

import google_crc32c
import pytest

from crossrank._assets import asset_folder
from crossrank.errors import StoreUnavailable
from crossrank.store import lake as lake_module
from crossrank.store.lake import Lake
from crossrank.store.migrate import Migration, read_migrations
from crossrank.store.verify import verify
from tests.support.make_data_fixture import T0, answers, event, open_real, send

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
VERSIONS = sorted(p.name for p in FIXTURES.glob("data_v*"))


def unpacked(version, folder):
    with tarfile.open(FIXTURES / version / "folder.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "data"


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_folder_of_an_earlier_format_answers_as_it_did_and_goes_on(version, tmp_path):
    data = unpacked(version, tmp_path)
    expected = json.loads((FIXTURES / version / "answers.json").read_text())
    assert verify(data, now_ns=T0, progress=lambda *_: None).damage == []
    for _ in range(2):  # as a kill left it, then as a stop leaves it
        store = open_real(data)
        assert answers(store) == expected
        store.close()
    store = open_real(data)
    send(store, [event(i) for i in range(1, 5)], T0 + 9)  # a resend is recognised
    assert answers(store)["job-a"]["events"] == expected["job-a"]["events"]
    send(store, [event(99)], T0 + 10)
    store.seal()
    store.compact()
    assert len(answers(store)["job-a"]["events"]) == len(expected["job-a"]["events"]) + 1
    store.close()


def newer_log(data, monkeypatch):
    """A log file whose header says format 2."""
    path = max((data / "wal").iterdir())
    whole = bytearray(path.read_bytes())
    size = struct.calcsize("<8sIQ8x")
    for at in (0, size + 4):
        struct.pack_into("<I", whole, at + 8, 2)
        struct.pack_into("<I", whole, at + size, google_crc32c.value(bytes(whole[at : at + size])))
    path.write_bytes(whole)


def newer_catalog(data, monkeypatch):
    """A catalog with a migration that this release does not know."""
    known = read_migrations(asset_folder("migrations"))
    newer = [*known, Migration(len(known) + 1, "0099_future.sql", "CREATE TABLE lake.future (x INTEGER)")]
    with monkeypatch.context() as patch:
        patch.setattr(lake_module, "read_migrations", lambda folder: newer)
        Lake(data, now_ns=1).close()


@pytest.mark.parametrize("newer", [newer_log, newer_catalog])
def test_a_newer_folder_is_refused_with_a_reason_and_left_as_it_is(newer, tmp_path, monkeypatch):
    data = unpacked(VERSIONS[-1], tmp_path)
    newer(data, monkeypatch)
    before = content(data)
    with pytest.raises(StoreUnavailable, match=r"newer crossrank.*Nothing was changed"):
        open_real(data)
    assert content(data) == before
