"""The log: what was synced comes back, damage is seen and stepped over, and a failed sync is never trusted again."""

import errno
import os

import numpy as np
import pytest

from crossrank.counters import Counters
from crossrank.errors import StoreUnavailable
from crossrank.model.post import Post
from crossrank.store import wal as wal_module
from crossrank.store.replay import replay
from crossrank.store.wal import Wal
from crossrank.store.wal_format import HEADER_BYTES, file_header, record_header, record_parts
from tests.support.store_posts import counted


def a_post(i: int, size: int = 40) -> Post:
    body = np.random.default_rng(i).bytes(size)
    return Post("events", "application/json", "gzip" if i % 2 else "", f"job{i}" if i % 3 else None, 10**18 + i, body)


def written(folder, posts, files=1) -> None:
    wal = Wal(folder)
    for part in np.array_split(np.arange(len(posts)), files):
        wal.start_file()
        wal.append([posts[i] for i in part])
    wal.close()


def read_back(folder, floor=0) -> tuple[list[Post], Counters]:
    found, counters = [], Counters()
    replay(Wal(folder), counters, floor=floor, enter=found.append, after_file=lambda number: None)
    return found, counters


def test_posts_come_back_as_they_were_in_order(tmp_path):
    posts = [a_post(i, size) for i, size in enumerate((0, 1, 7, 100_000, 3, 20))]
    written(tmp_path, posts, files=3)
    found, counters = read_back(tmp_path)
    assert found == posts
    assert counted(counters, "wal_torn_tails") == counted(counters, "wal_damaged_records") == 0


def test_files_below_the_floor_are_deleted_and_not_read(tmp_path):
    posts = [a_post(i) for i in range(3)]
    written(tmp_path, posts, files=3)
    assert read_back(tmp_path, floor=3)[0] == posts[2:]
    assert sorted(p.name for p in (tmp_path / "wal").iterdir()) == ["00000003.wal"]


def test_a_log_cut_at_any_byte_of_its_last_records_gives_exactly_the_whole_ones(tmp_path):
    posts = [a_post(i, 30) for i in range(5)]
    written(tmp_path, posts)
    path = tmp_path / "wal" / "00000001.wal"
    whole = path.read_bytes()
    ends = list(HEADER_BYTES + np.cumsum([record_parts(p)[1] for p in posts]))
    assert ends[-1] == len(whole)
    for size in range(ends[1], len(whole) + 1):
        path.write_bytes(whole[:size])
        found, counters = read_back(tmp_path)
        kept = sum(end <= size for end in ends)
        assert found == posts[:kept]
        assert counted(counters, "wal_torn_tails") == (size not in ends)
        assert counted(counters, "wal_damaged_records") == 0
        assert path.stat().st_size == ([HEADER_BYTES, *ends][kept])


def test_a_file_cut_within_its_header_is_empty(tmp_path):
    written(tmp_path, [a_post(1)])
    path = tmp_path / "wal" / "00000001.wal"
    whole = path.read_bytes()
    for size in (0, 1, 31, HEADER_BYTES - 1, HEADER_BYTES):
        path.write_bytes(whole[:size])
        assert read_back(tmp_path)[0] == []


def test_every_bit_flip_is_seen_and_costs_at_most_the_record_it_hit(tmp_path):
    posts = [a_post(i, 50) for i in range(6)]
    written(tmp_path, posts, files=2)
    path = tmp_path / "wal" / "00000001.wal"
    whole = path.read_bytes()
    ends = HEADER_BYTES + np.cumsum([record_parts(p)[1] for p in posts[:3]])
    rng = np.random.default_rng(5)
    for bit in rng.choice(8 * len(whole), 400, replace=False).tolist():
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        found, counters = read_back(tmp_path)
        if bit // 8 < HEADER_BYTES:
            assert found == posts, "one copy of the header is enough"
            continue
        hit = int(np.searchsorted(ends, bit // 8, side="right"))
        assert found == [p for i, p in enumerate(posts) if i != hit]
        assert counted(counters, "wal_damaged_records") == 1
    aside = list((tmp_path / "quarantine").iterdir())
    assert aside, "damaged files are kept for a person"


def test_a_file_without_a_readable_header_is_set_aside(tmp_path):
    posts = [a_post(i) for i in range(4)]
    written(tmp_path, posts, files=2)
    path = tmp_path / "wal" / "00000001.wal"
    path.write_bytes(b"\0" * HEADER_BYTES + path.read_bytes()[HEADER_BYTES:])
    found, counters = read_back(tmp_path)
    assert found == posts[2:]
    assert counted(counters, "wal_damaged_records") == 1
    assert len(list((tmp_path / "quarantine").iterdir())) == 1


def test_a_body_full_of_log_records_is_never_taken_for_records(tmp_path):
    inner = Post("@delete", "", "", "victim", 1, b"")
    forged = b""
    for salt in range(3):  # without the file's salt and the right offset no checksum can hold
        for offset in range(3 * 64):
            meta, _ = record_parts(inner)
            forged += record_header(meta, b"", salt=salt, offset=offset) + meta
    posts = [a_post(1), Post("events", "", "", None, 1, file_header(0) + forged), a_post(2)]
    written(tmp_path, posts)
    path = tmp_path / "wal" / "00000001.wal"
    whole = bytearray(path.read_bytes())
    whole[HEADER_BYTES + record_parts(posts[0])[1] + 5] ^= 1  # the length of the record with the forged body
    path.write_bytes(whole)
    assert read_back(tmp_path)[0] == [posts[0], posts[2]]


def test_a_newer_format_is_refused_and_left_untouched(tmp_path, monkeypatch):
    written(tmp_path, [a_post(1)])
    monkeypatch.setattr("crossrank.store.wal_format.WAL_FORMAT", 7)
    wal = Wal(tmp_path)
    wal.start_file()
    wal.close()
    monkeypatch.undo()
    before = {p.name: p.read_bytes() for p in (tmp_path / "wal").iterdir()}
    with pytest.raises(StoreUnavailable, match="format 7"):
        Wal(tmp_path)
    assert {p.name: p.read_bytes() for p in (tmp_path / "wal").iterdir()} == before


def test_after_a_failed_sync_nothing_is_accepted_until_restart(tmp_path, monkeypatch):
    wal = Wal(tmp_path)
    wal.start_file()
    wal.append([a_post(1)])

    def failing(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(StoreUnavailable, match="sync failed"):
        wal.append([a_post(2)])
    monkeypatch.undo()
    with pytest.raises(StoreUnavailable, match="restart"):
        wal.append([a_post(3)])
    wal.close()
    assert read_back(tmp_path)[0][0] == a_post(1)


def test_a_full_disk_leaves_no_half_record_and_passes(tmp_path, monkeypatch):
    wal = Wal(tmp_path)
    wal.start_file()
    wal.append([a_post(1)])
    real = os.pwritev
    calls = []

    def short(fd, buffers, offset):
        calls.append(offset)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, [bytes(buffers[0])[:5]], offset)

    monkeypatch.setattr(wal_module.os, "pwritev", short)
    with pytest.raises(StoreUnavailable, match="No space"):
        wal.append([a_post(2)])
    monkeypatch.undo()
    wal.append([a_post(3)])
    wal.close()
    found, counters = read_back(tmp_path)
    assert found == [a_post(1), a_post(3)]
    assert counted(counters, "wal_torn_tails") == counted(counters, "wal_damaged_records") == 0


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.pwritev
    monkeypatch.setattr(wal_module.os, "pwritev", lambda fd, buffers, offset: real(fd, [bytes(buffers[0])[:7]], offset))
    posts = [a_post(i, 33) for i in range(3)]
    written(tmp_path, posts)
    monkeypatch.undo()
    assert read_back(tmp_path)[0] == posts
