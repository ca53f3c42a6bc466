"""A file of another format than was said is refused with the format it seems to have; an empty one as empty."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossrank.commands.import_ import find_recordings
from crossrank.errors import BadParameter, UndecodableBody
from crossrank.importers.formats import FORMATS, decode_file
from crossrank.importers.source import Source
from crossrank.limits import Limits

DUMP = {"version": "2.9", "entries": [], "pg_config": {}, "pg_status": {}}
FILES = {
    "kineto": b'{"distributedInfo": {"rank": 0, "pg_config": []}, "traceEvents": [{"ph": "X", "name": "f", "ts": 1, "dur": 1}]}',
    "flight_recorder": pickle.dumps(DUMP, protocol=2),
    "nccl_inspector": b'{"header": {"id": "0x1"}, "metadata": {}, "coll_perf": {"coll": "AllReduce"}}\n',
    "chakra": b'{"schema": "1", "nodes": [{"id": 1, "ctrl_deps": [], "attr": []}]}',
}


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    return sink.getvalue().to_pybytes()


def refusal(tried: str, data: bytes) -> str:
    with pytest.raises(UndecodableBody) as refused:
        decode_file(tried, data, Source("rank0", None, 5), Limits())
    return refused.value.message


@pytest.mark.parametrize("tried", sorted(FORMATS))
@pytest.mark.parametrize("is_", sorted(FILES))
def test_a_file_of_another_format_is_told_apart(tried: str, is_: str):
    if tried != is_:
        assert refusal(tried, FILES[is_]).endswith(f"; it looks like {is_}")


@pytest.mark.parametrize("tried", sorted(set(FORMATS) - {"crossrank", "whatif"}))
def test_parquet_may_be_two_things_and_compressed_files_are_looked_into(tried: str):
    assert refusal(tried, parquet()).endswith("; it looks like crossrank or whatif")
    other = "kineto" if tried != "kineto" else "nccl_inspector"
    assert refusal(tried, gzip.compress(FILES[other])).endswith(f"; it looks like {other}")


@pytest.mark.parametrize("format_", sorted(FORMATS))
@pytest.mark.parametrize("data", [b"", b" \n", gzip.compress(b"")], ids=["nothing", "blank", "gzip of nothing"])
def test_an_empty_file_is_called_empty(format_: str, data: bytes):
    assert refusal(format_, data).endswith("; the file is empty")


@pytest.mark.parametrize("format_", sorted(FORMATS))
@pytest.mark.parametrize("data", [b"no format at all", b"\xff" * 100, b'{"a": 1}'], ids=["text", "bytes", "json"])
def test_nothing_is_guessed_of_anything_else(format_: str, data: bytes):
    assert "looks like" not in refusal(format_, data)


def test_a_folder_without_files_is_said_to_be_one(tmp_path: Path):
    with pytest.raises(BadParameter, match="no files in this folder"):
        find_recordings([str(tmp_path)])
    with pytest.raises(BadParameter, match="no such file"):
        find_recordings([str(tmp_path / "absent")])
