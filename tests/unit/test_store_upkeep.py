"""Compaction and retention: rows, marks and counts stay right, snapshots stay readable, and a kill anywhere leaves no orphan."""

import dataclasses
import gc
from pathlib import Path

import pytest

from crossrank.counters import Counters
from crossrank.errors import NotFound
from crossrank.store import segment as segment_module
from crossrank.store import upkeep as upkeep_module
from crossrank.store.compact import run_to_compact
from crossrank.store.filter import EventFilter
from crossrank.store.jobs import Jobs
from crossrank.store.lake import Lake
from crossrank.store.snapshot import Pins
from tests.support.store_posts import T0, counted, crashed, open_store, put, row, spans

DAY = 86_400_000_000_000
SMALL = {"compact_segments": 2, "compact_rows": 1000}
NO_THREADS = {"compact_segments": 10**6}


class Killed(Exception):
    """What a failpoint raises."""


def failing(*_args, **_more):
    raise Killed


def behind(target, name):
    """A failpoint right behind a function."""
    real = getattr(target, name)

    def call(*args, **more):
        real(*args, **more)
        raise Killed

    return target, name, call


SWAP_STEPS = {
    "before the catalog": (Lake, "swap", failing),
    "within the transaction": (Lake, "_register", failing),
    "behind the catalog": behind(Lake, "swap"),
    "before readers see it": (Jobs, "exchange", failing),
    "before the files go": (Pins, "doom", failing),
}
WRITE_STEPS = {
    "before the file": (segment_module, "_write_parquet", failing),
    "before its name": (segment_module, "file_crc", failing),
    "behind the file": behind(upkeep_module, "write_compacted"),
}


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "lake" / "main" / "events").iterdir())


def state(store):
    return sorted(map(str, store.snapshot("j").events().to_pylist())), store.tallies("j"), store.rejects("j")


def sealed(folder, count=4, **limits):
    """A store with several segments: halves, their completion, conflicts, another job."""
    store = open_store(folder, **{**NO_THREADS, **limits})
    put(store, [row(1), row(2, 0, None), row(3, None, 9), row(7, job="k")], 1)
    store.seal()
    put(store, [row(2, None, 5, attrs='{"a":1}'), row(1, name="other"), row(4)], 2)
    store.seal()
    put(store, [row(3, 1, None), row(4, name="last"), row(5, 0, None, trace_id="ab" * 16)], 3, rejects=[("j", 1, "bad")])
    store.seal()
    for k in range(3, count):
        put(store, [row(10 + k), row(5, None, k)], k + 1)
        store.seal()
    return store


def with_limits(store, **limits):
    store._upkeep._limits = dataclasses.replace(store._upkeep._limits, **limits)
    return store


@pytest.mark.parametrize("count", [3, 5])
def test_compaction_changes_no_answer_and_recognises_resends(tmp_path, count):
    counters = Counters()
    store = sealed(tmp_path / "data", count, counters=counters)
    before = state(store)
    with_limits(store, **SMALL).compact()
    assert state(store) == before
    assert [s.info.covers_from for s in store._jobs.segments() if s.info.job == "j"] == [1]
    assert len(files(tmp_path / "data")) == 2
    assert counted(counters, "segments_compacted") == count
    store.close()
    store = open_store(tmp_path / "data", **NO_THREADS)
    assert state(store) == before
    again = put(store, [row(2, 0, None), row(1), row(4, name="last"), row(5, 0, None, trace_id="ab" * 16), row(3, None, 9)], 9)
    assert (again.accepted, again.duplicate) == (0, 5)
    assert store._lake._connection.execute("SELECT count(*) FROM lake.events WHERE job = 'k'").fetchall() == [(1,)]
    assert len(store.snapshot("j").events(where=EventFilter(trace_id=bytes.fromhex("ab" * 16)))) == 1
    store.close()


def test_a_middle_run_is_compacted_without_joining_what_lies_outside(tmp_path):
    store = open_store(tmp_path / "data", **NO_THREADS)
    put(store, [row(1, 0, None), *[row(100 + i) for i in range(64)]], 1)  # another size: not taken with the others
    store.seal()
    for k, end in enumerate((5, 8), 2):
        put(store, [row(1, None, end), row(10 + k)], k)
        store.seal()
    before = state(store)
    with_limits(store, compact_segments=2, compact_rows=60).compact()
    assert [s.info.covers_from for s in store._jobs.segments()] == [1, 2]
    assert state(store) == before
    assert (0, 1, 0, 5, "n", None) in spans(store.snapshot("j").events()), "the first complete pair"
    store.close()


def test_damaged_segments_stay_where_they_are(tmp_path):
    sealed(tmp_path / "data", 5).close()
    second = sorted((tmp_path / "data" / "lake" / "main" / "events").iterdir())[2]
    second.write_bytes(second.read_bytes()[:-1])
    store = open_store(tmp_path / "data", **NO_THREADS)
    with_limits(store, **SMALL).compact()
    snapshot = store.snapshot("j")
    assert second.name in snapshot.partial[0] or snapshot.events().num_rows
    assert second.exists()
    assert len([s for s in store._jobs.segments() if s.info.job == "j"]) == 3
    store.close()


def test_similar_sizes_go_together_and_large_ones_stay(tmp_path):
    store = open_store(tmp_path / "data", **NO_THREADS)
    for size in (100, 2, 3, 2, 100):
        put(store, [row(1000 * size + store.stats()["segments"] * 200 + i) for i in range(size)], 1)
        store.seal()
    segments = store._jobs.segments()
    assert run_to_compact(segments, fewest=3, rows_max=150) == tuple(segments[1:4])
    assert run_to_compact(segments, fewest=4, rows_max=150) == ()
    assert run_to_compact(segments, fewest=3, rows_max=1000) == tuple(segments[1:4])
    assert run_to_compact(segments, fewest=5, rows_max=1000) == tuple(segments)
    store.close()


def test_a_snapshot_reads_on_while_its_files_are_replaced(tmp_path):
    store = sealed(tmp_path / "data")
    snapshot = store.snapshot("j")
    before = sorted(map(str, snapshot.events().to_pylist()))
    with_limits(store, **SMALL).compact()
    for segment in snapshot._segments:
        segment._metadata = None
    assert sorted(map(str, snapshot.events().to_pylist())) == before
    assert snapshot.partial == ()
    del snapshot, segment
    gc.collect()
    store._pins.sweep()
    assert len(files(tmp_path / "data")) == 2
    store.close()


@pytest.mark.parametrize("step", [*SWAP_STEPS, *WRITE_STEPS])
def test_a_kill_in_the_middle_of_a_compaction_changes_nothing(tmp_path, monkeypatch, step):
    folder = tmp_path / "data"
    store = sealed(folder, count=3)
    before = state(store)
    monkeypatch.setattr(*{**SWAP_STEPS, **WRITE_STEPS}[step])
    with pytest.raises(Killed):
        with_limits(store, **SMALL).compact()
    assert state(store) == before
    copy = crashed(folder, tmp_path / "killed")
    monkeypatch.undo()
    store.compact()
    assert state(store) == before, "tried again"
    put(store, [row(99)], 9)
    store.close()
    for _ in range(2):
        opened = open_store(copy, **NO_THREADS)
        assert state(opened) == before
        assert len(files(copy)) == len(opened._jobs.segments()), "no orphans"
        opened.close()
    opened = open_store(folder, **NO_THREADS)
    assert len(spans(opened.snapshot("j").events())) == len(before[0]) + 1
    assert len(files(folder)) == len(opened._jobs.segments())
    opened.close()


def test_a_job_deleted_while_its_compaction_hangs_stays_deleted(tmp_path, monkeypatch):
    store = sealed(tmp_path / "data", count=3)
    monkeypatch.setattr(*SWAP_STEPS["before the catalog"])
    with pytest.raises(Killed):
        with_limits(store, **SMALL).compact()
    monkeypatch.undo()
    store.delete_job("j")
    store.compact()
    assert [e.job for e in store.jobs()] == ["k"]
    assert len(files(tmp_path / "data")) == 1
    store.close()


def aged(folder, **more):
    """Segments received on days 1, 2 and 3 behind T0, which is as far as the store's own clock is; their spans say something else."""
    store = open_store(folder, **NO_THREADS, **more)
    for day, span in ((1, 1), (2, 2), (3, 3)):
        put(store, [row(span, 10**15 - span, None), row(10 + span)], T0 + day * DAY)
        store.seal()
    return store


def test_retention_by_age_goes_by_the_time_of_receipt_and_says_what_is_missing(tmp_path):
    counters = Counters()
    store = aged(tmp_path / "data", counters=counters)
    version = store.version("j")
    with_limits(store, retain_ns=DAY).expire(T0 + 2 * DAY)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [1, 2, 3, 11, 12, 13]
    store.expire(T0 + 7 * DAY // 2)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [3, 13]
    assert store.version("j") > version
    assert store.rejects("j") == [(None, "expired", 4)]
    assert counted(counters, "events_expired") == 4
    assert len(files(tmp_path / "data")) == 1
    put(store, [row(4)], T0 + 4 * DAY)
    copy = crashed(tmp_path / "data", tmp_path / "killed")
    for opened in (store, open_store(copy, **NO_THREADS)):
        assert opened.rejects("j") == [(None, "expired", 4)]
        assert [s[1] for s in spans(opened.snapshot("j").events())] == [3, 4, 13]
        assert opened._lake._connection.execute("SELECT count(*) FROM lake.events").fetchall() == [(2,)]
        opened.close()


def test_a_job_of_which_nothing_is_left_goes_as_a_whole_but_not_one_that_is_posted_to(tmp_path):
    store = aged(tmp_path / "data")
    put(store, [row(1, job="old")], T0 + DAY)
    put(store, [row(1, job="new")], T0 + 9 * DAY)
    store.put_topology("shape", {"world_size": 2})
    store.seal()
    with_limits(store, retain_ns=DAY)
    store.expire(T0 + 9 * DAY)
    assert [e.job for e in store.jobs()] == ["new"]
    with pytest.raises(NotFound):
        store.snapshot("j")
    put(store, [row(5)], T0 + 9 * DAY)
    copy = crashed(tmp_path / "data", tmp_path / "killed")
    store.close()
    store = open_store(copy, **NO_THREADS)
    assert [(e.job, e.events) for e in store.jobs()] == [("j", 1), ("new", 1)]
    assert len(files(copy)) == 1
    store.close()


def test_retention_by_size_removes_the_oldest_and_keeps_the_newest(tmp_path):
    store = aged(tmp_path / "data")
    size = max(s.info.size_bytes for s in store._jobs.segments())
    with_limits(store, retain_job_bytes=2 * size).expire(0)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [2, 3, 12, 13]
    with_limits(store, retain_job_bytes=1).expire(0)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [3, 13]
    store.close()


def test_nothing_expires_unless_asked_for(tmp_path):
    store = aged(tmp_path / "data")
    store.expire(T0 + 10_000 * DAY)
    assert len(store.snapshot("j").events()) == 6
    store.close()


@pytest.mark.parametrize("step", [s for s in SWAP_STEPS if s != "within the transaction"])
def test_a_kill_in_the_middle_of_an_expiry_loses_only_what_had_to_go_and_counts_it_once(tmp_path, monkeypatch, step):
    folder = tmp_path / "data"
    store = with_limits(aged(folder), retain_ns=DAY)
    monkeypatch.setattr(*SWAP_STEPS[step])
    with pytest.raises(Killed):
        store.expire(T0 + 7 * DAY // 2)
    copy = crashed(folder, tmp_path / "killed")
    monkeypatch.undo()
    store.expire(T0 + 7 * DAY // 2)
    store.close()
    for where in (folder, copy, copy):
        opened = with_limits(open_store(where, **NO_THREADS), retain_ns=DAY)
        opened.expire(T0 + 7 * DAY // 2)
        assert [s[1] for s in spans(opened.snapshot("j").events())] == [3, 13]
        assert opened.rejects("j") == [(None, "expired", 4)]
        assert len(files(where)) == len(opened._jobs.segments()) == 1
        opened.close()


def test_a_damaged_segment_expires_too(tmp_path):
    aged(tmp_path / "data").close()
    first = min((tmp_path / "data" / "lake" / "main" / "events").iterdir())
    first.write_bytes(b"no longer Parquet")
    store = with_limits(open_store(tmp_path / "data", **NO_THREADS), retain_ns=DAY)
    store.expire(T0 + 7 * DAY // 2)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [3, 13]
    assert store.snapshot("j").partial == ()
    assert len(files(tmp_path / "data")) == 1
    store.close()


def test_a_resend_of_many_segments_ago_is_recognised_after_compaction_and_restart(tmp_path):
    store = open_store(tmp_path / "data", **SMALL)
    for k in range(6):
        put(store, [row(10 * k + i) for i in range(1, 5)], k + 1)
        store.seal()
    store.compact()
    store.close()
    store = open_store(tmp_path / "data", **SMALL)
    for k in range(6):
        assert put(store, [row(10 * k + i) for i in range(1, 5)], k + 10).duplicate == 4
    store.close()
