"""`crossrank export`: an Arrow stream cut into Parquet files by windows of steps."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from crossrank import errors
from crossrank.commands.export import run_export, window_of, write_windows
from tests.support.stub_service import Reply, fault, stub_service

SCHEMA = pa.schema(
    [pa.field("rank", pa.int32(), False), pa.field("step_inferred", pa.int64(), metadata={"unit": "", "meaning": "m"})]
)


def stream_of(*batches: tuple[int, list[int | None]]) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for rank, steps in batches:
            writer.write_table(pa.table({"rank": pa.array([rank] * len(steps), pa.int32()), "step_inferred": steps}, SCHEMA))
    return sink.getvalue()


def test_each_window_of_steps_is_a_file_and_rows_keep_their_order(tmp_path):
    stream = stream_of((0, [None, 0, 99, 100, 250]), (1, [0, 0, 299]), (2, []))
    files, rows = write_windows(io.BytesIO(stream), tmp_path, 100)
    assert rows == 8
    assert [str(f.relative_to(tmp_path)) for f in files] == [
        "steps=0000000-0000099/events.parquet",
        "steps=0000100-0000199/events.parquet",
        "steps=0000200-0000299/events.parquet",
        "steps=none/events.parquet",
    ]
    assert pq.read_table(files[0], partitioning=None).to_pydict() == {"rank": [0, 0, 1, 1], "step_inferred": [0, 99, 0, 0]}
    assert pq.read_schema(files[0]).field("step_inferred").metadata[b"meaning"] == b"m"
    assert ds.dataset(tmp_path, partitioning="hive").count_rows() == 8
    assert not list(tmp_path.rglob("*.partial"))


def test_a_stream_that_breaks_off_leaves_no_file(tmp_path):
    stream = stream_of((0, list(range(1000))))
    with pytest.raises(errors.Refused, match="the export broke off after 0 events"):
        write_windows(io.BytesIO(stream[: len(stream) // 2]), tmp_path, 100)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_the_window_keeps_the_number_of_files_small():
    assert window_of(None, None) == 100
    assert window_of(0, 6199) == 100
    assert window_of(0, 6200) == 200
    assert (10**9) / window_of(0, 10**9 - 1) <= 62


def test_export_over_http(tmp_path, capsys):
    stream = stream_of((0, [0, 1]))

    def answer(request):
        if request.path.startswith("/v1/jobs/a%2Fb/export"):
            assert "format=arrow" in request.path
            assert "from=0" in request.path
            return Reply(raw=stream)
        return Reply({"job": "a/b", "attempt": 2, "steps": {"first": 0, "last": 1}})

    with stub_service(answer) as stub:
        run_export("a/b", tmp_path, url=stub.url, data=None, first=0, last=None)
    assert (tmp_path / "job=a%2Fb" / "attempt=2" / "steps=0000000-0000099" / "events.parquet").is_file()
    assert capsys.readouterr().out.startswith("2 events in 1 file (")


def test_export_of_an_unknown_job(tmp_path):
    with stub_service(lambda r: fault(404, "not_found", "no job 'x'")) as stub, pytest.raises(errors.NotFound, match="no job 'x'"):
        run_export("x", tmp_path, url=stub.url, data=None, first=None, last=None)
