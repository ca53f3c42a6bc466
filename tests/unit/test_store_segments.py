"""A damaged segment is left out, named and counted; whatever is wrong with it, no answer is wrong."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossrank.counters import Counters
from crossrank.store import segment as segment_module
from crossrank.store.filter import EventFilter
from crossrank.store.segment import SEGMENT_SCHEMA, file_crc
from tests.support.store_posts import T0, counted, crashed, open_store, put, row, spans


def two_segments(folder, **more):
    """Spans 1..3 in the first file, 4 and a new version of 1 in the second."""
    store = open_store(folder, **more)
    put(store, [row(1), row(2), row(3)], 1)
    store.seal()
    put(store, [row(4), row(1, name="newer")], 2)
    store.seal()
    return store


def first_file(folder):
    return folder / "lake" / "main" / "events" / "00000001.parquet"


DAMAGE = {
    "checksum does not match": lambda p: p.write_bytes(p.read_bytes()[:-30] + b"x" + p.read_bytes()[-29:]),
    "another size": lambda p: p.write_bytes(p.read_bytes()[:-1]),
    "is missing": lambda p: p.unlink(),
    "has another size": lambda p: p.write_bytes(b""),
}


@pytest.mark.parametrize("reason", DAMAGE)
def test_a_damaged_file_makes_the_answer_partial_not_wrong(tmp_path, reason):
    two_segments(tmp_path / "data").close()
    DAMAGE[reason](first_file(tmp_path / "data"))
    counters = Counters()
    store = open_store(tmp_path / "data", counters=counters)
    snapshot = store.snapshot("j")
    assert [s[1::3] for s in spans(snapshot.events())] == [(1, "newer"), (4, "n")]
    assert len(snapshot.partial) == 1
    assert reason in snapshot.partial[0]
    assert "00000001.parquet" in snapshot.partial[0]
    assert store.snapshot("j").events(["name"], EventFilter(ranks=(0,))).num_rows == 2
    assert store.snapshot("j").partial == snapshot.partial, "known from now on"
    assert counted(counters, "segments_damaged") == 1
    store.probe()
    put(store, [row(1), row(5)], 3)
    store.seal()
    assert {s[1] for s in spans(store.snapshot("j").events())} >= {4, 5}
    del snapshot  # it kept the files
    store.delete_job("j")
    assert list((tmp_path / "data" / "lake" / "main" / "events").iterdir()) == []
    store.close()
    store = open_store(tmp_path / "data")
    assert store.jobs() == []
    assert store._lake._connection.execute("SELECT count(*) FROM lake.events").fetchall() == [(0,)]
    store.close()


def test_a_foreign_parquet_file_with_a_matching_checksum_is_left_out(tmp_path):
    store = two_segments(tmp_path / "data")
    path = first_file(tmp_path / "data")
    pq.write_table(pa.table({"job": ["j"] * 3}), path)
    segment = store._jobs.segments()[0]
    segment.info = dataclasses.replace(segment.info, size_bytes=path.stat().st_size, crc32c=file_crc(path))
    segment._metadata = None  # as after a restart
    snapshot = store.snapshot("j")
    assert [s[1] for s in spans(snapshot.events())] == [1, 4]
    assert "other columns" in snapshot.partial[0]
    store.close()


def test_no_bit_flip_gives_a_wrong_answer(tmp_path):
    two_segments(tmp_path / "data").close()
    path, rng = first_file(tmp_path / "data"), np.random.default_rng(11)
    whole = path.read_bytes()
    store = open_store(tmp_path / "data")
    segment = store._jobs.segments()[0]
    right = spans(store.snapshot("j").events())
    without = [s for s in right if s[1] not in {2, 3}]
    for bit in rng.choice(8 * len(whole), 100, replace=False).tolist():
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        segment.fault, segment._metadata = None, None  # as after a restart
        snapshot = store.snapshot("j")
        assert spans(snapshot.events()) == without
        assert snapshot.partial
    path.write_bytes(whole)
    segment.fault, segment._metadata = None, None
    assert spans(store.snapshot("j").events()) == right
    store.close()


def test_damage_after_the_first_use_is_seen_by_the_page_checksums(tmp_path):
    store = two_segments(tmp_path / "data")
    right = spans(store.snapshot("j").events())
    path, rng = first_file(tmp_path / "data"), np.random.default_rng(12)
    whole = path.read_bytes()
    segment = store._jobs.segments()[0]
    for byte in rng.choice(len(whole), 100, replace=False).tolist():
        damaged = bytearray(whole)
        damaged[byte] ^= 0x10
        path.write_bytes(damaged)
        segment.fault = None
        snapshot = store.snapshot("j")
        answer = spans(snapshot.events())
        assert answer == right or snapshot.partial
        path.write_bytes(whole)
    store.close()


def test_resends_after_losing_a_segment_heal_it(tmp_path):
    two_segments(tmp_path / "data").close()
    first_file(tmp_path / "data").unlink()
    store = open_store(tmp_path / "data")
    assert put(store, [row(1), row(2), row(3)], 3).accepted == 3
    store.seal()
    assert [s[1] for s in spans(store.snapshot("j").events())] == [1, 2, 3, 4]
    store.close()


def test_a_catalog_without_its_file_is_not_taken_for_a_new_folder(tmp_path):
    two_segments(tmp_path / "data").close()
    copy = crashed(tmp_path / "data", tmp_path / "copy")
    (copy / "catalog.duckdb").unlink()
    with pytest.raises(Exception, match="no catalog"):
        open_store(copy)
    assert first_file(copy).exists()


def test_segments_are_sorted_and_documented(tmp_path):
    store = open_store(tmp_path / "data")
    put(store, [row(1, 30, 40, rank=1), row(2, 5, None), row(3, None, 9, rank=2), row(4, 5, 6), row(2, 5, 8)])
    store.seal()
    store.close()
    with pq.ParquetFile(first_file(tmp_path / "data")) as file:
        assert file.schema_arrow.equals(SEGMENT_SCHEMA)
        rows, footer = file.read(), file.metadata.metadata
        starts = [None if s is None else s - T0 for s in rows.column("start_ns").to_pylist()]
        encodings = file.metadata.row_group(0).column(rows.column_names.index("start_ns")).encodings
    assert starts == [5, 5, 30, None]
    assert rows.column("rank").to_pylist() == [0, 0, 1, 2]
    assert [len(m) for m in rows.column("marks").to_pylist()] == [2, 1, 1, 1]
    assert "DELTA_BINARY_PACKED" in encodings
    assert footer[b"crossrank.rows"] == b"4"
    assert rows.schema.field("end_ns").metadata[b"unit"] == b"ns since epoch"


def test_row_groups_without_a_match_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_module, "_ROW_GROUP_ROWS", 10)
    store = open_store(tmp_path / "data")
    put(store, [row(i, 10 * i, 10 * i + 5, step=i // 10) for i in range(100)])
    store.seal()
    read, real = [], pq.ParquetFile.read_row_group
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", lambda self, i, **more: (read.append(i), real(self, i, **more))[1])
    ask = store.snapshot("j").events
    assert ask(where=EventFilter(from_ns=T0 + 500, to_ns=T0 + 600)).num_rows == 10
    assert set(read) == {5}
    assert ask(["name"], EventFilter(step_from=2, step_to=4)).num_rows == 20
    assert set(read) == {5, 2, 3}
    assert ask(["name"], EventFilter(ranks=(7,))).num_rows == 0
    assert set(read) == {5, 2, 3}
    store.close()


def test_values_that_do_not_repeat_are_written_without_a_dictionary(tmp_path):
    store = open_store(tmp_path / "data")
    put(store, [row(i, trace_id=f"{i:032x}", bytes=i * 7919, parent_span_id=f"{1 + i % 9:016x}") for i in range(1, 500)])
    store.seal()
    with pq.ParquetFile(first_file(tmp_path / "data")) as file:
        group = file.metadata.row_group(0)
        coded = {(c := group.column(k)).path_in_schema: c.dictionary_page_offset is not None for k in range(group.num_columns)}
    assert {name: coded[name] for name in ("trace_id", "bytes", "span_id", "parent_span_id", "name", "rank")} == {
        "trace_id": False, "bytes": False, "span_id": False, "parent_span_id": True, "name": True, "rank": True,
    }  # fmt: skip
    assert len(spans(store.snapshot("j").events())) == 499
    store.close()
