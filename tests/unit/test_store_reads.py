"""Reads: batches give the rows of `events`, trace filters never deny what is there, exports are read by anybody."""

from types import SimpleNamespace

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossrank.model.columns import EVENT_SCHEMA
from crossrank.query.answers.events import EventQuery, events_page
from crossrank.query.derive import derive
from crossrank.query.export import EXPORT_SCHEMA, aligned_batches, arrow_stream, parquet_stream
from crossrank.store import segment as segment_module
from crossrank.store.bloom import may_hold, xxh64
from crossrank.store.filter import EventFilter
from tests.support.store_posts import T0, open_store, put, row


@pytest.mark.parametrize(
    ("data", "hashed"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"\x00" * 8, 0x34C96ACDCADB1BBB),
    ],
)
def test_the_hash_is_xxhash64(data, hashed):
    assert xxh64(data) == hashed


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Small row groups; halves, conflicts and traces over several segments and memory."""
    patch = pytest.MonkeyPatch()
    patch.setattr(segment_module, "_ROW_GROUP_ROWS", 16)
    store = open_store(tmp_path_factory.mktemp("reads") / "data", compact_segments=10**6)
    for part in range(4):
        rows = [
            row(
                1000 * part + i,
                50 * i,
                50 * i + 30,
                rank=i % 4,
                step=part,
                trace_id=f"{part * 8 + i // 16 + 1:032x}",
                attrs='{"a":1}',
            )
            for i in range(1, 100)
        ]
        put(store, [*rows, row(5000, part, None if part else 9), row(7000 + part, None, 5)], T0 + part)
        if part < 3:
            store.seal()
    yield store
    store.close()
    patch.undo()


@pytest.mark.parametrize("columns", [None, ["span_id", "flags"], ["name"]])
@pytest.mark.parametrize(
    "where",
    [EventFilter(), EventFilter(ranks=(2,), from_ns=T0 + 500, to_ns=T0 + 2000), EventFilter(trace_id=(3).to_bytes(16, "big"))],
)
def test_batches_are_the_rows_of_events(store, columns, where):
    snapshot = store.snapshot("j")
    whole = snapshot.events(columns, where)
    batches = list(snapshot.batches(columns, where))
    assert all(b.schema.equals(whole.schema) for b in batches)
    assert sorted(str(r) for b in batches for r in b.to_pylist()) == sorted(map(str, whole.to_pylist()))


def test_batches_leave_a_damaged_segment_out_and_say_so(tmp_path):
    store = open_store(tmp_path / "data")
    for span in (1, 2, 3):
        put(store, [row(span), row(9, None, span)])
        store.seal()
    middle = sorted((tmp_path / "data" / "lake" / "main" / "events").iterdir())[1]
    middle.write_bytes(b"gone")
    snapshot = store.snapshot("j")
    found = [r["span_id"][-1] for b in snapshot.batches() for r in b.to_pylist()]
    assert sorted(found) == [1, 3, 9]
    assert middle.name in snapshot.partial[0]
    store.close()


def test_trace_filters_never_deny_and_rarely_err(store):
    segment = store._jobs.segments()[0]
    leaf = EVENT_SCHEMA.get_field_index("trace_id")
    with segment.open_verified() as file, segment.path.open("rb", buffering=0) as raw:
        said = false = 0
        for g in range(file.num_row_groups):
            held = {t for t in file.read_row_group(g, columns=["trace_id"]).column(0).to_pylist() if t is not None}
            column = file.metadata.row_group(g).column(leaf)
            assert all(may_hold(raw.fileno(), column, xxh64(t)) for t in held)
            others = [i.to_bytes(16, "big") for i in range(1000, 1300)]
            said += len(others)
            false += sum(may_hold(raw.fileno(), column, xxh64(t)) for t in others if t not in held)
    assert false < 0.02 * said


def test_a_trace_is_found_however_late_its_spans_came(store):
    put(store, [row(90_000, trace_id=f"{2:032x}")], T0 + 99)
    found = store.snapshot("j").events(["span_id"], EventFilter(trace_id=(2).to_bytes(16, "big")))
    assert sorted(int.from_bytes(i, "big") for i in found.column(0).to_pylist()) == [*range(16, 32), 90_000]


def view(store):
    snapshot = store.snapshot("j")
    events = snapshot.events(where=EventFilter(attempt=0))
    derived = derive(events, job="j", attempt=0, version=1, topology=None, truncated=False)
    return SimpleNamespace(snapshot=snapshot, derived=derived)  # all that an export asks of a JobView


def test_an_export_is_read_by_pandas_polars_and_duckdb_and_says_what_its_columns_mean(store, tmp_path):
    path = tmp_path / "events.parquet"
    shown = view(store)
    path.write_bytes(b"".join(parquet_stream(aligned_batches(shown))))
    expected = {(r["rank"], r["span_id"]): r["start_ns"] for r in shown.snapshot.events().to_pylist()}
    frames = {
        "pandas": pd.read_parquet(path, dtype_backend="pyarrow").to_dict("records"),  # without it columns with nulls become floats
        "polars": pl.read_parquet(path).to_dicts(),
        "duckdb": duckdb.sql(f"SELECT * FROM '{path}'").to_arrow_table().to_pylist(),
    }
    for name, rows in frames.items():
        assert len(rows) == len(expected), name
        got = {(r["rank"], bytes(r["span_id"])): r["start_ns"] for r in rows}
        same = {k: None if pd.isna(got[k]) else int(got[k]) for k in expected}
        assert same == expected, name
        assert set(rows[0]) == set(EXPORT_SCHEMA.names), name
    fields = pq.read_schema(path)
    assert fields.field("aligned_start_ns").metadata[b"meaning"] == b"Start on the common timeline."
    assert fields.field("bound_ns").metadata[b"unit"] == b"ns"
    streamed = pa.ipc.open_stream(b"".join(arrow_stream(aligned_batches(shown)))).read_all()
    assert streamed.equals(pq.read_table(path).cast(EXPORT_SCHEMA))


def test_an_export_can_hold_raw_times_in_its_aligned_columns(store):
    rows = [r for batch in aligned_batches(view(store), how="raw") for r in batch.to_pylist()]
    assert rows
    assert all((r["aligned_start_ns"], r["aligned_end_ns"]) == (r["start_ns"], r["end_ns"]) for r in rows)


def test_an_export_holds_a_batch_at_a_time(store):
    sizes = [len(b) for b in aligned_batches(view(store))]
    assert len(sizes) > 15
    assert max(sizes) <= 110


def test_pages_are_all_rows_once_in_order(store):
    shown, seen, cursor = view(store), [], None
    while True:
        page, cursor = events_page(shown, EventQuery(None, None, None, None, None, None, 37, cursor))
        seen += [(r["start_ns"] or r["end_ns"], r["rank"], r["span_id"]) for r in page.to_pylist()]
        if cursor is None:
            break
    rows = shown.snapshot.events(where=EventFilter(attempt=0)).to_pylist()
    assert seen == sorted((r["start_ns"] or r["end_ns"], r["rank"], r["span_id"]) for r in rows)


def test_a_full_page_reads_no_segment_that_begins_later(tmp_path):
    store = open_store(tmp_path / "data")
    for part in range(3):
        put(store, [row(100 * part + i, 10_000 * part + i, 10_000 * part + i + 5) for i in range(1, 20)], part + 1)
        store.seal()
    shown = view(store)
    for segment in shown.snapshot._segments[1:]:
        segment.path.unlink()
        segment._metadata = None
    page, cursor = events_page(shown, EventQuery(None, None, None, None, None, None, 10, None))
    assert (len(page), shown.snapshot.partial) == (10, ())
    assert cursor is not None
    store.close()
