"""`verify` sees every kind of damage and changes nothing; `rebuild` makes the catalog again from the segments."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from crossrank import cli
from crossrank.errors import Damaged, NotFound, StoreUnavailable
from crossrank.store import scrub as scrub_module
from crossrank.store.rebuild import rebuild
from crossrank.store.scrub import scrub
from crossrank.store.verify import verify
from tests.support.store_posts import T0, crashed, open_store, put, row, spans


def silent(done, of):
    """Nobody watches the progress."""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Three segments of two jobs, one of them compacted, and events in the log only; as a kill leaves them."""
    folder = tmp_path_factory.mktemp("original")
    store = open_store(folder / "data", compact_segments=2)
    put(store, [row(1, trace_id="ab" * 16), row(2, 0, None)], 1, rejects=[("j", 3, "bad_id")])
    store.put_topology("j", {"world_size": 4})
    store.seal()
    put(store, [row(2, 0, 9), row(1, name="other")], 2)
    store.seal()
    store.compact()
    put(store, [row(5, job="k")], 3)
    store.seal()
    put(store, [row(6), row(2, 0, 9)], 4)
    copy = crashed(folder / "data", folder / "killed")
    store.close()
    return copy


@pytest.fixture
def data(tmp_path, original):
    return crashed(original, tmp_path / "data")


def everything(folder):
    store = open_store(folder)
    jobs = [
        (e.job, e.attempts, spans(store.snapshot(e.job).events()), store.rejects(e.job), store.topology(e.job))
        for e in store.jobs()
    ]
    store.close()
    return jobs


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "lock"}


def segments(folder):
    return sorted((folder / "lake" / "main" / "events").iterdir())


def test_a_whole_folder_is_whole_and_left_as_it_is(data):
    before = content(data)
    report = verify(data, now_ns=T0, progress=silent)
    assert (report.damage, report.segments, report.rows, report.log_records) == ([], 2, 3, 1)
    assert content(data) == before


DAMAGE = {
    "is missing": lambda d: segments(d)[0].unlink(),
    "cannot be read": lambda d: segments(d)[0].write_bytes(b""),
    "no catalog that can be read": lambda d: (d / "catalog.duckdb").write_bytes(b"not a database" * 1000),
    "`crossrank rebuild` makes a new one": lambda d: (d / "catalog.duckdb").unlink(),
    "size or checksum": lambda d: shutil.copy(segments(d)[1], segments(d)[0]),
}


@pytest.mark.parametrize("said", DAMAGE)
def test_damage_is_named(data, said):
    DAMAGE[said](data)
    damage = verify(data, now_ns=T0, progress=silent).damage
    assert len(damage) == 1
    assert said in damage[0]


def test_a_log_damaged_in_the_middle_is_named_and_a_torn_tail_noted(data):
    store = open_store(data)
    put(store, [row(8)], 5)
    copy = crashed(data, data.with_name("killed"))
    store.close()
    log = max((copy / "wal").iterdir())
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    assert "never acknowledged" in verify(copy, now_ns=T0, progress=silent).notes[0]
    first = min(p for p in (copy / "wal").iterdir())
    damaged = bytearray(first.read_bytes())
    damaged[-20] ^= 1
    first.write_bytes(damaged)
    assert "cannot be read from byte" in verify(copy, now_ns=T0, progress=silent).damage[0]


def test_leftovers_are_notes(data):
    shutil.copy(segments(data)[0], segments(data)[0].with_name("00000099.parquet"))
    report = verify(data, now_ns=T0, progress=silent)
    assert report.damage == []
    assert "00000099.parquet is in no catalog" in report.notes[0]


def test_every_bit_flip_of_a_segment_is_seen_even_without_its_checksum(data, monkeypatch):
    """As after the catalog was lost: what the file says about itself has to do."""
    path, rng = segments(data)[0], np.random.default_rng(3)
    whole, lake = path.read_bytes(), data / "lake"
    right = scrub(lake, f"main/events/{path.name}")
    missed = []
    for bit in rng.choice(8 * len(whole), 150, replace=False).tolist():
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(flipped)
        try:
            info, facts = scrub(lake, f"main/events/{path.name}")
            with pq.ParquetFile(path) as file:
                rows = file.read()
        except Exception:  # noqa: BLE001  - however it is refused
            continue
        path.write_bytes(whole)
        if (info.rows, facts.job) != (right[0].rows, "j") or not rows.equals(pq.ParquetFile(path).read()):
            missed.append(bit)
    assert missed == []


@pytest.mark.parametrize("lost", ["deleted", "overwritten", "kept"])
def test_rebuild_gives_everything_back(data, tmp_path, lost):
    expected = everything(crashed(data, tmp_path / "untouched"))
    if lost == "deleted":
        (data / "catalog.duckdb").unlink()
        (data / "catalog.duckdb.wal").unlink(missing_ok=True)
    if lost == "overwritten":
        (data / "catalog.duckdb").write_bytes(b"x" * 50_000)
    if lost != "kept":
        with pytest.raises(StoreUnavailable, match="crossrank rebuild"):
            open_store(data)
    done = rebuild(data, now_ns=T0, progress=silent)
    assert (done.segments, done.rows, done.jobs, done.set_aside) == (2, 3, 2, ())
    assert verify(data, now_ns=T0, progress=silent).damage == []
    assert everything(data) == expected
    store = open_store(data)
    assert put(store, [row(1), row(1, name="other"), row(2, 0, None), row(6)], 9).accepted == 1, "row(1) without its trace is new"
    put(store, [row(77)], 10)
    store.seal()
    store.close()
    assert len(segments(data)) == 4


def test_rebuild_sets_damaged_and_replaced_segments_aside(data):
    segments(data)[1].write_bytes(b"no Parquet")
    store = open_store(data, compact_segments=2)
    put(store, [row(30)], 5)
    store.seal()
    inputs = {p.name: p.read_bytes() for p in segments(data)}
    store.compact()
    store.close()
    for name, kept in inputs.items():  # as if the kill had come before the old files were deleted
        (data / "lake" / "main" / "events" / name).write_bytes(kept)
    (data / "catalog.duckdb").unlink()
    done = rebuild(data, now_ns=T0, progress=silent)
    assert len(done.set_aside) == len(segments(data)) - done.segments + len(done.set_aside)
    assert any("compacted" in reason for _, reason in done.set_aside)
    assert any("cannot be read" in reason for _, reason in done.set_aside)
    store = open_store(data)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [1, 2, 6, 30]
    assert store.snapshot("j").partial == ()
    store.close()


def test_a_newer_segment_is_left_alone(data, monkeypatch):
    before = content(data)
    monkeypatch.setattr(scrub_module, "SEGMENT_FORMAT", 0)
    for ask in (rebuild, verify):
        with pytest.raises(StoreUnavailable, match="newer"):
            ask(data, now_ns=T0, progress=silent)
    assert content(data) == before


def test_a_catalog_older_than_its_segments_loses_nothing(data, tmp_path):
    """Somebody puts an old copy of the catalog back: segments it does not know are set aside, not deleted."""
    open_store(data).close()
    old = (data / "catalog.duckdb").read_bytes()
    store = open_store(data)
    put(store, [row(40)], 5)
    store.seal()
    put(store, [row(41)], 6)
    store.close()
    (data / "catalog.duckdb").write_bytes(old)
    (data / "catalog.duckdb.wal").unlink(missing_ok=True)
    open_store(data).close()
    aside = list((data / "quarantine").glob("*.parquet"))
    assert len(aside) == 2
    for path in aside:
        shutil.move(path, data / "lake" / "main" / "events" / path.name)
    rebuild(data, now_ns=T0, progress=silent)
    store = open_store(data)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [1, 2, 6, 40, 41]
    store.close()


def test_both_need_the_folder_for_themselves_and_a_folder_that_is_one(data, tmp_path):
    store = open_store(data)
    for ask in (rebuild, verify):
        with pytest.raises(StoreUnavailable, match="in use"):
            ask(data, now_ns=T0, progress=silent)
    store.close()
    with pytest.raises(NotFound):
        verify(tmp_path, now_ns=T0, progress=silent)


def test_the_commands_say_what_they_found(data):
    run = CliRunner().invoke
    whole = run(cli.app, ["verify", "--data", str(data)])
    assert "2 segments with 3 events" in whole.output
    assert "no damage" in whole.output
    segments(data)[0].write_bytes(b"")
    damaged = run(cli.app, ["verify", "--data", str(data)])
    assert isinstance(damaged.exception, Damaged)
    assert cli.EXIT_CODES[Damaged] == 7
    assert "damage: lake/" in damaged.output
    rebuilt = run(cli.app, ["rebuild", "--data", str(data)])
    assert "new catalog: 1 segment with 1 event of " in rebuilt.output
    assert "set aside" in rebuilt.output
    stats = run(cli.app, ["stats", "--data", str(data)])
    assert stats.exit_code == 0
    assert "segments_sealed" in stats.output
    assert stats.output.index("segments_damaged") < stats.output.index("memtable_rows")
