"""A failure or a kill between any two steps neither loses nor doubles an event, and leaves nothing lying around."""

import errno
import os
from pathlib import Path

import pytest

from crossrank.counters import Counters
from crossrank.errors import StoreUnavailable
from crossrank.store import lake as lake_module
from crossrank.store import seal as seal_module
from crossrank.store import segment as segment_module
from crossrank.store.jobs import Jobs
from crossrank.store.lake import Lake
from crossrank.store.seal import Sealer
from crossrank.store.wal import Wal
from tests.support.store_posts import counted, crashed, open_store, put, row, spans


class Killed(Exception):
    """What a failpoint raises."""


def before(target, name):
    """A failpoint in front of a function."""

    def failing(*_args, **_more):
        raise Killed(name)

    return target, name, failing


def behind(target, name):
    """A failpoint right behind a function."""
    real = getattr(target, name)

    def failing(*args, **more):
        real(*args, **more)
        raise Killed(name)

    return target, name, failing


SEAL_STEPS = {
    "before freeze": before(Jobs, "freeze"),
    "after freeze": behind(Sealer, "take_up"),
    "before parquet": before(segment_module, "_write_parquet"),
    "parquet written, not renamed": before(segment_module, "file_crc"),
    "one file renamed": behind(seal_module, "write_segment"),
    "before hand-over": before(Lake, "hand_over"),
    "within hand-over": before(Lake, "_insert_facts"),
    "after hand-over": behind(Lake, "hand_over"),
    "before publish": before(Jobs, "publish"),
    "before log drop": before(Wal, "drop_below"),
    "after log drop": behind(Wal, "drop_below"),
}


def segment_files(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "lake" / "main" / "events").iterdir())


@pytest.fixture(scope="module")
def unsealed(tmp_path_factory):
    """A killed store with one segment and a log of new, closing, conflicting and rejected events and a topology."""
    folder = tmp_path_factory.mktemp("unsealed")
    store = open_store(folder / "data")
    put(store, [row(1), row(2, 0, None)], 1)
    store.seal()
    put(store, [row(1), row(2, 0, 7), row(3), row(1, name="other"), row(9, job="k")], 2, rejects=[("j", 3, "bad_id")])
    store.put_topology("j", {"world_size": 2})
    copy = crashed(folder / "data", folder / "killed")
    store.close()
    return copy


@pytest.mark.parametrize("step", SEAL_STEPS)
def test_a_kill_in_the_middle_of_a_seal_neither_loses_nor_doubles(tmp_path, monkeypatch, unsealed, step):
    folder = crashed(unsealed, tmp_path / "data")
    store = open_store(folder)
    expected = spans(store.snapshot("j").events()), store.tallies("j"), store.rejects("j")
    assert [s[1:5] for s in expected[0]] == [(1, 0, 10, "other"), (2, 0, 7, "n"), (3, 0, 10, "n")]
    monkeypatch.setattr(*SEAL_STEPS[step])
    with pytest.raises(Killed):
        store.seal()
    assert (spans(store.snapshot("j").events()), store.tallies("j"), store.rejects("j")) == expected
    copy = crashed(folder, tmp_path / "killed")
    monkeypatch.undo()
    store.close()
    store = open_store(copy)
    assert (spans(store.snapshot("j").events()), store.tallies("j"), store.rejects("j")) == expected
    assert spans(store.snapshot("k").events()) == [(0, 9, 0, 10, "n", None)]
    assert store.topology("j") == {"world_size": 2}
    assert put(store, [row(1), row(2, 0, 7), row(3)], 3).accepted == 0, "resends are recognised"
    store.close()
    assert len(segment_files(copy)) == 3, "no orphans"
    assert len(list((copy / "wal").iterdir())) == 1


@pytest.mark.parametrize("step", ["before parquet", "one file renamed", "within hand-over"])
def test_a_failed_seal_is_tried_again_with_what_came_meanwhile(tmp_path, monkeypatch, step):
    store = open_store(tmp_path / "data")
    put(store, [row(1), row(2, job="k")])
    monkeypatch.setattr(*SEAL_STEPS[step])
    for _ in range(2):
        with pytest.raises(Killed):
            store.seal()
    put(store, [row(3), row(1)])
    monkeypatch.undo()
    store.seal()
    assert store.stats()["memtable_rows"] == 0
    assert [s[1] for s in spans(store.snapshot("j").events())] == [1, 3]
    assert store.tallies("j") == {"accepted": 2, "duplicate": 1, "conflict": 0}
    store.close()


def test_a_job_deleted_while_its_seal_hangs_stays_deleted(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, [row(1), row(2, job="k")])
    monkeypatch.setattr(*SEAL_STEPS["before hand-over"])
    with pytest.raises(Killed):
        store.seal()
    monkeypatch.undo()
    store.delete_job("j")
    put(store, [row(5)])
    copy = crashed(folder, tmp_path / "killed")
    store.seal()
    for opened in (store, open_store(copy)):
        assert [s[1] for s in spans(opened.snapshot("j").events())] == [5]
        assert [s[1] for s in spans(opened.snapshot("k").events())] == [2]
        opened.close()
    assert len(segment_files(folder)) == len(segment_files(copy)) == 2


@pytest.mark.parametrize("at", [before(Lake, "remove"), behind(Lake, "remove")])
def test_a_kill_during_deletion_deletes_all_the_same(tmp_path, monkeypatch, at):
    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, [row(1), row(2, job="k")])
    store.seal()
    monkeypatch.setattr(*at)
    with pytest.raises(Killed):
        store.delete_job("j")
    monkeypatch.undo()
    put(store, [row(7)])
    copy = crashed(folder, tmp_path / "killed")
    put(store, [row(8)])
    store.seal()
    store.close()
    for where, kept in ((folder, [7, 8]), (copy, [7])):
        store = open_store(where)
        assert [s[1] for s in spans(store.snapshot("j").events())] == kept
        assert store.tallies("j")["accepted"] == len(kept)
        store.close()
        assert len(segment_files(where)) == 2


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_disk_failing_at_any_call_is_unavailable_never_lost(tmp_path, monkeypatch, code):
    """Each call to the disk fails once, at every place of a put and a seal; what was acknowledged stays, and work resumes."""
    folder = tmp_path / "data"
    store = open_store(folder)
    acknowledged = []
    failing = {"left": -1}

    def fail_once(name):
        real = getattr(os, name)

        def call(*args, **more):
            failing["left"] -= 1
            if failing["left"] == 0:
                raise OSError(code, os.strerror(code))
            return real(*args, **more)

        return call

    for name in ("pwritev", "pwrite", "fsync", "rename", "link", "open", "unlink"):
        monkeypatch.setattr(os, name, fail_once(name))
    span = 0
    for nth in range(1, 40):
        failing["left"] = nth
        for _ in range(2):
            span += 1
            try:
                put(store, [row(span)])
            except StoreUnavailable:
                continue
            acknowledged.append(span)
        try:
            store.seal()
        except StoreUnavailable:
            assert failing["left"] <= 0
        assert [s[1] for s in spans(store.snapshot("j").events())] == acknowledged
        if failing["left"] > 0:
            break
    else:
        pytest.fail("the sweep did not reach the last call")
    monkeypatch.undo()
    assert put(store, [row(10_000)]).accepted == 1
    store.seal()
    store.close()
    store = open_store(folder)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [*acknowledged, 10_000]
    store.close()


def test_a_failed_sync_stops_the_store_until_it_is_opened_again(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, [row(1)])

    def failing(fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", failing)
    with pytest.raises(StoreUnavailable):
        put(store, [row(2)])
    monkeypatch.undo()
    for call in (lambda: put(store, [row(3)]), store.probe, lambda: store.put_topology("j", {})):
        with pytest.raises(StoreUnavailable, match="restart"):
            call()
    assert [s[1] for s in spans(store.snapshot("j").events())] == [1], "reads go on"
    store.close()
    store = open_store(folder)
    assert 1 in [s[1] for s in spans(store.snapshot("j").events())]
    assert put(store, [row(3)]).accepted == 1
    store.close()


def test_a_body_that_cannot_be_decoded_again_does_not_stop_the_start(tmp_path):
    folder = tmp_path / "data"
    store = open_store(folder)
    put(store, [row(1)])
    copy = crashed(folder, tmp_path / "killed")
    store.close()

    def refusing(post):
        raise ValueError("no longer understood")

    counters = Counters()
    store = open_store(copy, counters=counters, decoder=refusing)
    assert store.jobs() == []
    assert counted(counters, "wal_undecodable_posts") == 1
    store.close()
    assert len(list((copy / "quarantine").iterdir())) == 1


def test_the_catalog_connection_is_renewed_after_a_failed_transaction(tmp_path, monkeypatch):
    store = open_store(tmp_path / "data")
    put(store, [row(1)])

    def failing(folder):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(lake_module, "sync_folder", failing)
    with pytest.raises(StoreUnavailable):
        store.seal()
    monkeypatch.undo()
    store.seal()
    assert store.stats()["segments"] == 1, "the transaction had gone through and is not repeated"
    assert len(segment_files(tmp_path / "data")) == 1
    store.probe()
    store.close()
