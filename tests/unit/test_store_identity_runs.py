"""Identity runs say "maybe" to everything they hold and to next to nothing else, and are made anew whenever they are missing."""

import dataclasses
import shutil

import numpy as np
import pytest

from crossrank.store import identity_runs as runs_module
from crossrank.store import segment as segment_module
from crossrank.store.identity_run import KEY_BITS, Part, merged, of_keys, read
from tests.support.store_posts import crashed, open_store, put, row, spans

SALT = 7


def keys_of(seed, count):
    return np.random.default_rng(seed).integers(-(2**63), 2**63, count, dtype=np.int64)


def asked(run, keys):
    rows, parts = run.probe(keys, np.arange(len(keys)))
    return rows.tolist(), parts.tolist()


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1000, 100_000])
def test_a_run_knows_its_keys_and_no_others(tmp_path, count):
    keys, others = keys_of(1, count), keys_of(2, 50_000)
    run = of_keys(keys, Part("a", 1), salt=SALT)
    run.write(tmp_path / "1.ids")
    for known in (run, read(tmp_path / "1.ids", salt=SALT)):
        assert asked(known, keys) == (list(range(count)), [0] * count)
        truncated = np.isin(others.view(np.uint64) >> np.uint64(64 - KEY_BITS), keys.view(np.uint64) >> np.uint64(64 - KEY_BITS))
        assert asked(known, others)[0] == np.flatnonzero(truncated).tolist() == []
    assert run.entries == count
    assert run.size_bytes <= 5.4 * count + 48, "fewer bytes an identity in larger runs"


def test_keys_that_crowd_one_bucket_are_found_all_the_same():
    keys = np.arange(5000, dtype=np.int64) << 22
    run = of_keys(keys, Part("a", 1), salt=SALT)
    assert asked(run, keys) == (list(range(5000)), [0] * 5000)
    assert asked(run, keys + (5000 << 22)) == ([], [])


def test_a_merged_run_tells_the_segment_and_leaves_those_out_that_are_gone(tmp_path):
    keys = [keys_of(k, 3000 * (k + 1)) for k in range(5)]
    keys[3][:10] = keys[0][:10]  # in two segments
    parts = [Part(f"p{k}", k) for k in range(5)]
    runs = [of_keys(k, p, salt=SALT) for k, p in zip(keys, parts, strict=True)]
    first = merged(runs[:3], set(parts), salt=SALT)
    whole = merged([first, *runs[3:]], set(parts) - {parts[1]}, salt=SALT)
    assert whole.parts == (parts[0], parts[2], parts[3], parts[4])
    whole.write(tmp_path / "1-2.ids")
    for known in (whole, read(tmp_path / "1-2.ids", salt=SALT)):
        for place, k in ((0, 0), (1, 2), (2, 3), (3, 4)):
            rows, found = known.probe(keys[k], np.arange(len(keys[k])))
            assert np.array_equal(np.unique(rows[found == place]), np.arange(len(keys[k])))
        assert asked(known, keys[1]) == ([], [])
        assert asked(known, keys[0][:3]) == ([0, 0, 1, 1, 2, 2], [0, 2, 0, 2, 0, 2])
    assert whole.size_bytes < 5 * whole.entries


def test_a_run_that_is_damaged_cut_foreign_or_of_another_salt_is_none(tmp_path):
    path = tmp_path / "1.ids"
    of_keys(keys_of(1, 500), Part("a", 1), salt=SALT).write(path)
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    assert read(path, salt=SALT + 1) is None
    assert read(tmp_path / "none.ids", salt=SALT) is None
    for bit in rng.integers(0, 8 * len(whole), 300).tolist():
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(flipped)
        assert read(path, salt=SALT) is None, bit
    for size in (0, 1, 7, 8, 20, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert read(path, salt=SALT) is None, size


def ids(folder):
    return sorted(p.name for p in (folder / "identities").iterdir())


def many(folder, **limits):
    """Nine segments that compaction leaves alone, three spans each."""
    store = open_store(folder, compact_segments=10**6, **limits)
    for k in range(9):
        put(store, [row(10 * k + i, start=100 * k + i) for i in range(3)], k + 1)
        store.seal()
    return store


def resent(store):
    """Every span again, exactly and with another name: how many were accepted."""
    exact = put(store, [row(10 * k + i, start=100 * k + i) for k in range(9) for i in range(3)], 90)
    other = put(store, [row(10 * k + 1, start=1000 - k, name="x") for k in range(9)], 91)
    return exact.accepted, other.accepted, other.conflict


@pytest.mark.parametrize("wrong", ["nothing", "no folder", "no salt", "cut", "another segment's"])
def test_runs_are_made_anew_from_the_segments(tmp_path, wrong):
    many(tmp_path / "data").close()
    folder = tmp_path / "data" / "identities"
    if wrong == "no folder":
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    elif wrong == "no salt":
        (folder / "salt").unlink()
    elif wrong == "cut":
        (folder / "00000004.ids").write_bytes((folder / "00000004.ids").read_bytes()[:-9])
    elif wrong == "another segment's":
        (folder / "00000004.ids").write_bytes((folder / "00000005.ids").read_bytes())
    store = open_store(tmp_path / "data", compact_segments=10**6)
    assert resent(store) == (0, 9, 9)
    assert len(ids(tmp_path / "data")) == 10
    assert not store._jobs.facts("j").forgot
    assert store.stats()["identity_run_bytes"] == sum(p.stat().st_size for p in folder.glob("*.ids"))
    store.close()


def test_runs_of_large_segments_are_merged_by_eights_and_survive_restart_and_expiry(tmp_path):
    store = many(tmp_path / "data")
    store._runs.merge(store._jobs.segments(), rows_min=3, go_on=lambda: True)
    assert ids(tmp_path / "data") == ["00000001-00000008.ids", "00000009.ids", "salt"]
    copy = crashed(tmp_path / "data", tmp_path / "killed")
    for folder, opened in ((tmp_path / "data", store), (copy, open_store(copy, compact_segments=10**6))):
        with opened._upkeep_lock:  # the store's own expiry would take everything
            limits = opened._upkeep._limits
            opened._upkeep._limits = dataclasses.replace(limits, retain_ns=2)
            opened._upkeep.expire(7)  # segments 1 to 4 hold nothing received since 5
            opened._upkeep._limits = limits
        again = put(opened, [row(10 * k + i, start=100 * k + i) for k in range(9) for i in range(3)], 90)
        assert again.accepted in {12, 9}, "what has expired is new; the table may still know the last two seals"
        assert len(spans(opened.snapshot("j").events())) == 27
        opened.delete_job("j")
        assert ids(folder) == ["salt"]
        assert opened.stats()["identity_run_bytes"] == 0
        opened.close()


def test_compaction_takes_the_runs_along_and_a_restart_removes_leftovers(tmp_path):
    store = open_store(tmp_path / "data", compact_segments=3)
    for k in range(3):
        put(store, [row(10 * k + i, start=100 * k + i) for i in range(3)], k + 1)
        store.seal()
    store.compact()
    assert ids(tmp_path / "data") == ["00000004.ids", "salt"]
    store.close()
    for name in ("00000001.ids", "00000005.ids", "00000001-00000003.ids", "00000002.tmp"):
        (tmp_path / "data" / "identities" / name).write_bytes(b"left over")
    store = open_store(tmp_path / "data")
    assert ids(tmp_path / "data") == ["00000004.ids", "salt"]
    assert put(store, [row(21, start=201)], 9).duplicate == 1
    store.close()


def test_a_full_disk_costs_the_file_of_a_run_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(runs_module.IdentityRun, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    store = many(tmp_path / "data")
    assert ids(tmp_path / "data") == ["salt"]
    assert resent(store) == (0, 9, 9)
    store.close()


def test_a_folder_that_cannot_be_made_does_not_stop_the_start(tmp_path):
    many(tmp_path / "data").close()
    shutil.rmtree(tmp_path / "data" / "identities")
    (tmp_path / "data" / "identities").write_text("in the way")
    store = open_store(tmp_path / "data", compact_segments=10**6)
    assert resent(store) == (0, 9, 9)
    store.close()


def test_a_segment_that_cannot_be_read_makes_its_resends_new_and_reads_merge(tmp_path):
    many(tmp_path / "data").close()
    path = tmp_path / "data" / "lake" / "main" / "events" / "00000004.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    store = open_store(tmp_path / "data", compact_segments=10**6)
    assert resent(store) == (3, 8 + 1, 9)
    assert store._jobs.facts("j").forgot
    store.close()
    path.write_bytes(whole)  # it is readable again
    store = open_store(tmp_path / "data", compact_segments=10**6)
    assert [s[1] for s in spans(store.snapshot("j").events())] == [10 * k + i for k in range(9) for i in range(3)]
    store.close()


def test_exact_copies_are_looked_for_where_their_time_is_and_little_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_module, "_ROW_GROUP_ROWS", 10)
    store = open_store(tmp_path / "data", identity_groups=2)
    rows = [row(i, start=10 * i) for i in range(100)]
    put(store, rows, 1)
    store.seal()
    store.close()
    store = open_store(tmp_path / "data", identity_groups=2)
    read_groups, real = [], runs_module.SegmentFile.identities
    monkeypatch.setattr(
        runs_module.SegmentFile, "identities", lambda self, group, salt: (read_groups.append(group), real(self, group, salt))[1]
    )
    assert put(store, rows[42:45], 2).duplicate == 3
    assert set(read_groups) == {4}
    assert put(store, rows[44:52], 3).duplicate == 8
    assert read_groups == [4, 5], "what was read is kept for the next batch"
    assert put(store, [row(45, start=0), row(300, start=5)], 4).conflict == 1
    assert set(read_groups) == set(range(10)), "another version may have any time"
    assert len(store._jobs._remembered._stored._groups) == 2
    store.close()
