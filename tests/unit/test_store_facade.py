"""The store as its callers see it: receipts, versions, limits, deletion, snapshots that hold still, one process a folder."""

import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from crossrank.counters import Counters
from crossrank.errors import NotFound, Overloaded, StoreUnavailable
from crossrank.limits import Limits
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.store import wal as wal_module
from crossrank.store.filter import EventFilter
from crossrank.store.store import Store
from tests.support.store_posts import T0, counted, crashed, decode, open_store, post, put, row, spans, table


@pytest.fixture
def store(tmp_path):
    opened = open_store(tmp_path / "data")
    yield opened
    opened.close()


def files(store: Store) -> list[str]:
    return sorted(p.name for p in (store._folder / "lake" / "main" / "events").iterdir())


def test_a_new_folder_is_made_and_an_empty_store_has_no_jobs(tmp_path):
    store = Store.open(
        tmp_path / "a" / "b", decode=decode, limits=Limits(disk_free_bytes=0), counters=Counters(), now_ns=lambda: T0
    )
    assert store.jobs() == []
    for ask in (store.version, store.snapshot, store.rejects, store.tallies, store.topology, store.delete_job):
        with pytest.raises(NotFound, match="'nobody'"):
            ask("nobody")
    store.probe()
    store.close()
    store.close()


def test_a_receipt_tells_new_from_seen_and_the_version_grows_with_every_change(store):
    receipt = put(store, [row(1), row(2), row(1)])
    assert (receipt.accepted, receipt.duplicate, receipt.conflict) == (2, 1, 0)
    first = store.version("j")
    assert put(store, [row(2)]).duplicate == 1
    assert store.version("j") == first, "nothing changed"
    assert put(store, [row(2, name="x")]).conflict == 1
    second = store.version("j")
    store.put_topology("j", {"world_size": 8, "ranks": [{"rank": 0, "host": "h"}]})
    assert first < second < store.version("j")
    assert store.topology("j") == {"world_size": 8, "ranks": [{"rank": 0, "host": "h"}]}
    assert store.tallies("j") == {"accepted": 3, "duplicate": 2, "conflict": 1}


def test_jobs_of_one_request_are_kept_apart(store):
    put(store, [row(1, job="b"), row(1, job="a"), row(2, job="b", attempt=3)], received_ns=7)
    assert [(e.job, e.attempts, e.events, e.last_received_ns) for e in store.jobs()] == [("a", (0,), 1, 7), ("b", (0, 3), 2, 7)]
    assert store.snapshot("b").attempts == (0, 3)
    assert len(store.snapshot("b").events(where=EventFilter(attempt=3))) == 1


def test_rejects_and_tallies_survive_seal_restart_and_kill(tmp_path):
    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, [row(1), row(1)], rejects=[("j", 2, "bad_id"), ("j", None, "no_rank"), (None, None, "no_job")])
    store.seal()
    put(store, [row(1)], rejects=[("j", 2, "bad_id"), ("only_bad", 0, "bad_time")])
    copy = crashed(folder, tmp_path / "killed")
    store.close()
    for where in (folder, copy, copy):
        store = open_store(where)
        assert store.rejects("j") == [(2, "bad_id", 2), (None, "no_rank", 1)]
        assert store.rejects("only_bad") == [(0, "bad_time", 1)]
        assert store.tallies("j") == {"accepted": 1, "duplicate": 2, "conflict": 0}
        store.close()


def test_rejects_of_endlessly_many_ranks_are_counted_together(store):
    put(store, [], rejects=[("j", rank, "bad") for rank in range(5000)])
    rejects = store.rejects("j")
    assert len(rejects) == 4097
    assert rejects[-1] == (None, "bad", 904)


def test_a_snapshot_holds_still_and_keeps_its_files(store):
    put(store, [row(1), row(2, 0, None)])
    store.seal()
    put(store, [row(3)])
    before = store.snapshot("j")
    put(store, [row(2, 0, 9), row(1, name="other"), row(4)], 2)
    store.seal()
    middle = store.snapshot("j")
    store.delete_job("j")
    put(store, [row(9)])
    assert spans(before.events()) == [(0, 1, 0, 10, "n", None), (0, 2, 0, None, "n", None), (0, 3, 0, 10, "n", None)]
    assert [s[1:5] for s in spans(middle.events())] == [(1, 0, 10, "other"), (2, 0, 9, "n"), (3, 0, 10, "n"), (4, 0, 10, "n")]
    assert [s[1] for s in spans(store.snapshot("j").events())] == [9]
    assert len(files(store)) == 2
    assert before.partial == middle.partial == ()
    del before, middle
    gc.collect()
    store._seal_if_due()
    assert files(store) == []


def test_a_deleted_job_starts_anew(tmp_path):
    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, [row(1), row(2, job="k")], rejects=[("j", 0, "bad")])
    store.put_topology("j", {"world_size": 1})
    store.seal()
    put(store, [row(3)])
    store.delete_job("j")
    assert [e.job for e in store.jobs()] == ["k"]
    assert len(files(store)) == 1
    with pytest.raises(NotFound):
        store.delete_job("j")
    assert put(store, [row(1)]).accepted == 1, "not a duplicate any more"
    for _ in range(2):
        assert (store.rejects("j"), store.topology("j"), store.tallies("j")["accepted"]) == ([], None, 1)
        assert [s[1] for s in spans(store.snapshot("j").events())] == [1]
        store.close()
        store = open_store(folder)
    store.close()


def test_the_lake_can_be_read_without_us_and_moved(tmp_path):
    import duckdb

    from crossrank.store.lake import _attached

    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, [row(1, attrs='{"a":1}', group_ranks=[0, 1]), row(2, job="k")])
    store.close()
    moved = folder.rename(tmp_path / "elsewhere")
    with _attached(moved / "catalog.duckdb", moved / "lake") as connection:
        found = connection.execute("SELECT job, attrs, group_ranks, start_ns FROM lake.events ORDER BY job").fetchall()
    assert found == [("j", '{"a":1}', [0, 1], T0), ("k", None, None, T0)]
    file = str(next((moved / "lake").rglob("*.parquet")))
    footer = dict(duckdb.sql(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{file}')").fetchall())
    assert (footer["crossrank.job"], footer["crossrank.rows"], footer["crossrank.format"]) == ("j", "1", "1")
    store = open_store(moved)
    store.delete_job("j")
    assert spans(store.snapshot("k").events()) == [(0, 2, 0, 10, "n", None)]
    store.close()


def test_the_second_process_is_told_who_holds_the_folder(tmp_path, store):
    with pytest.raises(StoreUnavailable, match=rf'in use by another process .*"pid": {os.getpid()}'):
        open_store(tmp_path / "data")
    store.close()
    open_store(tmp_path / "data").close()


def test_concurrent_writers_get_exact_receipts(store):
    def send(writer: int) -> int:
        futures = []
        for i in range(20):
            sent = post([row(writer * 100 + i, rank=writer), row(i, rank=99)])
            futures.append(store.append(sent, decode(sent)))
        return sum(f.result(60).accepted for f in futures)

    with ThreadPoolExecutor(8) as pool:
        accepted = list(pool.map(send, range(8)))
    assert sum(accepted) == 8 * 20 + 20
    assert store.snapshot("j").events().num_rows == 180
    assert store.tallies("j") == {"accepted": 180, "duplicate": 140, "conflict": 0}


def test_one_sync_serves_many_requests(tmp_path, monkeypatch):
    counters = Counters()
    store = open_store(tmp_path / "data", counters=counters)
    real, go = os.fdatasync, threading.Event()

    def waiting(fd):
        go.wait(30)
        real(fd)

    monkeypatch.setattr(wal_module.os, "fdatasync", waiting)
    futures = []
    for i in range(50):
        sent = post([row(i)])
        futures.append(store.append(sent, decode(sent)))
    assert not any(f.done() for f in futures)
    go.set()
    assert sum(f.result(30).accepted for f in futures) == 50
    assert counted(counters, "wal_syncs") <= 3
    assert counted(counters, "events_accepted") == 50
    store.close()


def test_a_full_log_refuses_until_it_is_sealed(tmp_path):
    store = open_store(tmp_path / "data", wal_bytes=5000)
    put(store, [row(1, attrs="x" * 3000)])
    with pytest.raises(Overloaded) as refused:
        put(store, [row(2, attrs="y" * 3000)])
    assert refused.value.detail == {"budget": "wal"}
    assert store.snapshot("j").events().num_rows == 1, "reads go on"
    store.seal()
    assert put(store, [row(2, attrs="y" * 3000)]).accepted == 1
    store.close()


def test_full_memory_refuses_until_it_is_sealed(tmp_path):
    store = open_store(tmp_path / "data", memtable_bytes=2000)
    put(store, [row(i) for i in range(99)])
    with pytest.raises(Overloaded) as refused:
        put(store, [row(100)])
    assert refused.value.detail == {"budget": "memtable"}
    store.seal()
    assert put(store, [row(100)]).accepted == 1
    store.close()


def test_there_is_a_bound_on_jobs(tmp_path):
    store = open_store(tmp_path / "data", jobs=2)
    put(store, [row(1, job="a"), row(1, job="b")])
    for call in (lambda: put(store, [row(1, job="third")]), lambda: store.put_topology("third", {})):
        with pytest.raises(Overloaded, match="2 jobs"):
            call()
    store.delete_job("a")
    assert put(store, [row(1, job="third")]).accepted == 1
    store.close()


def test_a_full_disk_refuses_writes_but_not_reads(tmp_path, monkeypatch):
    store = open_store(tmp_path / "data", disk_free_bytes=1 << 10)
    put(store, [row(1)])
    full = os.statvfs_result((4096, 4096, 100, 0, 0, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    for call in (lambda: put(store, [row(2)]), store.probe, lambda: store.put_topology("j", {})):
        with pytest.raises(StoreUnavailable, match="bytes are free"):
            call()
    assert store.snapshot("j").events().num_rows == 1
    monkeypatch.undo()
    assert put(store, [row(2)]).accepted == 1
    store.close()


def test_a_closed_store_takes_nothing(tmp_path):
    store = open_store(tmp_path / "data")
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        put(store, [row(1)])


def test_requests_that_change_no_job_do_not_fill_the_log_for_good(tmp_path):
    store = open_store(tmp_path / "data", wal_bytes=2000)
    assert put(store, []).accepted == 0
    assert store.stats()["wal_bytes"] == 64, "a request without events is not kept"
    for _ in range(40):
        put(store, [], rejects=[(None, None, "no_job")])
        store._seal_if_due()
    store.close()


def test_restarts_leave_no_empty_log_files(tmp_path):
    folder = tmp_path / "data"
    for _ in range(3):
        open_store(folder).close()
    assert len(list((folder / "wal").iterdir())) == 1


def test_sealing_is_due_by_age_memory_and_log_size(tmp_path):
    for limits in ({"memtable_age_ns": 0}, {"memtable_bytes": 0}, {"wal_bytes": 3000}):
        store = open_store(tmp_path / next(iter(limits)), **limits)
        sent = post([row(i, attrs="x" * 500) for i in range(3)])
        store.append(sent, decode(sent)).result(30)
        store._seal_if_due()
        assert store.stats()["segment_rows"] == 3
        assert store.stats()["wal_files"] == 1
        store.close()
    store = open_store(tmp_path / "never")
    put(store, [row(1)])
    store._seal_if_due()
    assert store.stats()["segments"] == 0
    store.close()


def test_a_log_larger_than_memory_is_replayed_in_pieces(tmp_path):
    folder = tmp_path / "data"
    store = open_store(folder, wal_segment_bytes=300)
    for i in range(12):
        put(store, [row(i), row(i, rank=1)], i)
    copy = crashed(folder, tmp_path / "killed")
    store.close()
    store = open_store(copy, memtable_bytes=1000)
    assert store.stats()["segments"] > 1
    assert store.snapshot("j").events().num_rows == 24
    assert store.tallies("j") == {"accepted": 24, "duplicate": 0, "conflict": 0}
    store.close()


def test_a_resend_long_after_its_segment_is_recognised_though_memory_holds_only_what_is_not_sealed(tmp_path):
    folder = tmp_path / "data"
    store = open_store(folder, compact_segments=10**6)
    for start in range(0, 200, 20):
        put(store, [row(i, start=i) for i in range(start, start + 20)], start + 1)
        store.seal()
    assert store.stats()["identities"] <= 40, "those of the last two seals"
    for _ in range(2):
        again = put(store, [row(0), row(199, start=199), row(57, start=57), row(20, start=7), row(21, start=21, end=None)], 500)
        assert (again.accepted, again.conflict) in {(1, 1), (0, 0)}, "only another content is new, and only the first time"
        found = spans(store.snapshot("j").events())
        assert [s[1] for s in found] == list(range(200))
        assert found[20][2] == 7
        assert not store._jobs.facts("j").forgot
        store.close()
        store = open_store(folder)
    assert store.tallies("j") == {"accepted": 201, "duplicate": 9, "conflict": 1}
    store.close()


def test_columns_come_in_schema_order_with_unified_words(store):
    put(store, [row(1, name="b")])
    store.seal()
    put(store, [row(2, name="a"), row(3, name="b")])
    events = store.snapshot("j").events(["name", "rank", "start_ns"])
    assert events.column_names == ["rank", "name", "start_ns"]
    assert events.schema.equals(pa.schema([EVENT_SCHEMA.field(n) for n in events.column_names]))
    assert events.column("name").num_chunks == 1
    assert sorted(events.column("name").chunk(0).dictionary.to_pylist()) == ["a", "b"]
    assert store.snapshot("j").events(where=EventFilter(ranks=(5,))).schema.equals(EVENT_SCHEMA)
    with pytest.raises(ValueError, match="nonsense"):
        store.snapshot("j").events(["nonsense"])


def test_events_of_another_schema_are_our_bug(store):
    sent = post([row(1)])
    wrong = decode(sent)
    with pytest.raises(AssertionError):
        store.append(sent, type(wrong)(table([row(1)]).select(["job"])))
