"""Flight recorder dumps: pickle and JSON, nccl and gloo, old and new, against counts made from the files themselves."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from crossrank.errors import BadParameter, UndecodableBody
from crossrank.importers.flight_recorder import read
from crossrank.importers.formats import decode_file
from crossrank.importers.source import Source
from crossrank.limits import Limits


def rows_of(data: bytes, name: str = "rank3.json", rank: int | None = None, at_ns: int = 77) -> list[dict[str, Any]]:
    decoded = decode_file("flight_recorder", data, Source(name, rank, at_ns), Limits())
    return [row | {"attrs": json.loads(row["attrs"] or "{}")} for row in decoded.rows.to_pylist()]


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "record_id": 5,
        "pg_id": 1,
        "process_group": ("12", "tp"),
        "collective_seq_id": 40,
        "p2p_seq_id": 7,
        "op_id": 47,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_123,
        "input_sizes": [[4, 2], [3]],
        "input_dtypes": ["BFloat16", "Float"],
        "output_sizes": [[4, 2], [3]],
        "output_dtypes": ["BFloat16", "Float"],
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 600_000,
        "is_p2p": False,
        **changes,
    }


def dump(*entries: dict[str, Any], **changes: Any) -> bytes:
    whole = {
        "version": "2.9",
        "entries": list(entries),
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}, "12": {"ranks": "[1, 3]"}},
        "pg_status": {"0": {"last_enqueued_collective": 9, "last_started_collective": -1, "last_completed_collective": 8}},
        **changes,
    }
    return pickle.dumps(whole, protocol=2)


def recorded(recordings: Path) -> list[Path]:
    return sorted(
        [*recordings.glob("flight_recorder/*/_dump_*"), *recordings.glob("gloo/*/fr/*"), *recordings.glob("gloo/*/fr_json/*")]
    )


def test_an_entry_becomes_an_event_with_every_column():
    (row, *_) = rows_of(dump(entry(time_discovered_completed_ns=1_700_000_000_000_009_999, state="completed")))
    expected = {
        "rank": 3,
        "lane": "flight_recorder",
        "name": "nccl:all_reduce",
        "kind": "collective",
        "op": "all_reduce",
        "group": "12",
        "group_ranks": [1, 3],
        "seq": 40,
        "peer": None,
        "bytes": 4 * 2 * 2 + 3 * 4,
        "dtype": "BFloat16",
        "start_ns": 1_700_000_000_000_000_123,
        "end_ns": 1_700_000_000_000_009_999,
        "is_async": None,
    }
    assert {name: row[name] for name in expected} == expected
    assert row["attrs"]["record_id"] == 5
    assert row["attrs"]["retired"] is False
    assert row["attrs"]["state"] == "completed"
    assert row["attrs"]["timeout_ms"] == 600_000


def test_an_operation_nobody_saw_end_has_no_end():
    (row, *_) = rows_of(dump(entry(retired=True)))
    assert row["end_ns"] is None
    assert row["attrs"]["retired"] is True


@pytest.mark.parametrize(
    ("title", "kind", "op", "peer", "seq"),
    [
        ("nccl:send 1->0", "send", "send", 1, 7),
        ("nccl:recv 1<-0", "recv", "recv", 1, 7),
        ("nccl:recv 0<-1", "recv", "recv", 3, 7),
        ("nccl:_all_gather_base", "collective", "all_gather", None, 40),
        ("nccl:_reduce_scatter_base", "collective", "reduce_scatter", None, 40),
        ("nccl:all_to_all", "collective", "all_to_all", None, 40),
        ("nccl:all_reduce_barrier", "collective", "barrier", None, 40),
        ("gloo:broadcast", "collective", "broadcast", None, 40),
        ("nccl:coalesced", "collective", "nccl:coalesced", None, 40),
    ],
)
def test_operations_and_peers(title, kind, op, peer, seq):
    (row, *_) = rows_of(dump(entry(profiling_name=title, is_p2p="send" in title or "recv" in title)))
    found = (row["kind"], row["op"], row["peer"], row["seq"])
    assert found == (kind, op if op != "nccl:coalesced" else "coalesced", peer, seq)


def test_a_peer_outside_the_known_members_is_unknown():
    (row, *_) = rows_of(dump(entry(profiling_name="nccl:send 0->5", process_group=("99", ""))))
    assert (row["peer"], row["group_ranks"]) == (None, None)


def test_the_counters_of_groups_are_marks_at_the_last_moment():
    *_, mark = rows_of(dump(entry()))
    assert (mark["kind"], mark["name"], mark["start_ns"], mark["end_ns"]) == ("mark", "pg_status", *[1_700_000_000_000_000_123] * 2)
    assert mark["attrs"]["last_enqueued_collective"] == 9
    assert mark["group"] is None  # two names, one counter: nothing says whose it is


def test_a_dump_without_entries_keeps_its_counters_by_the_order_of_creation():
    status = {n: {"last_enqueued_collective": int(n), "last_completed_collective": int(n)} for n in ("4", "11")}
    marks = rows_of(dump(pg_status=status), at_ns=123)
    assert [(m["group"], m["start_ns"], m["attrs"]["last_enqueued_collective"]) for m in marks] == [("0", 123, 4), ("12", 123, 11)]
    assert {m["attrs"]["group_known_from"] for m in marks} == {"order"}
    contradicted = rows_of(dump(entry(pg_id=4), pg_status=status))
    assert [m["group"] for m in contradicted[1:]] == ["12", None]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.4", "2.9", "2.10"])
def test_versions_with_less_in_them(version):
    data = json.dumps(
        {"version": version, "entries": [{"record_id": 1, "profiling_name": "nccl:all_reduce", "time_created_ns": 5}]}
    )
    (row,) = rows_of(data.encode())
    assert (row["start_ns"], row["group"], row["seq"], row["bytes"]) == (5, None, None, None)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"{", b'{"version":"3.0"}', b'{"version":null,"entries":[]}', b'{"version":"2.1","entries":{}}', b"null"],
)
def test_what_is_not_a_dump_is_refused(data):
    with pytest.raises(UndecodableBody):
        rows_of(data)


def test_odd_entries_are_refused_one_by_one():
    data = json.dumps({"version": "2.9", "entries": [3, entry(), {}, {"time_created_ns": "x", "process_group": 7, "frames": 3}]})
    decoded = decode_file("flight_recorder", data.encode(), Source("rank3.json", None, 77), Limits())
    assert [r.reason for r in decoded.rejections] == ["not_an_object"]
    assert decoded.index.tolist() == [1, 2, 3]


def test_the_rank_must_come_from_somewhere():
    with pytest.raises(BadParameter, match="--rank N") as fault:
        rows_of(dump(entry()), name="dump")
    assert fault.value.detail == {"field": "rank"}
    assert rows_of(dump(entry()), name="dump", rank=8)[0]["rank"] == 8


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_10", 10),
        ("/a/rank7/fr_trace_rank_0", 0),
        ("nccl_trace_rank_node02_2", 2),
        ("rank0.w1.json.gz", 0),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("host3_rank_12.json.zst", 12),
        ("trace.json", None),
        ("nccl_trace_rank_node02", 2),
        ("x_99999999999", None),
    ],
)
def test_ranks_in_file_names(name, rank):
    from crossrank.importers.source import rank_in_name

    assert rank_in_name(name, ends_in_rank=True) == rank


def test_every_recorded_dump_imports_whole(recordings):
    for path in recorded(recordings):
        with path.open("rb") as file:
            (decoded,) = read(file, Source(path.name, None, 1), Limits()).batches
        raw = path.read_bytes()
        truth = json.loads(raw) if path.suffix == ".json" else pickle.loads(raw)
        entries = truth["entries"]
        rows = decoded.rows.to_pylist()
        assert len(rows) == len(entries) + len(truth["pg_status"]), path
        assert sum(r["start_ns"] for r in rows[: len(entries)]) == sum(e["time_created_ns"] for e in entries)
        assert [r["group"] for r in rows[: len(entries)]] == [e["process_group"][0] for e in entries]
        assert {r["kind"] for r in rows[: len(entries)]} <= {"collective", "send", "recv"}
        assert None not in [r["op"] for r in rows[: len(entries)]]
        assert len({r["span_id"] for r in rows}) == len(rows)


def test_json_and_pickle_of_one_rank_are_the_same_events(recordings):
    for pickled in sorted(recordings.glob("gloo/*/fr/*_0")):
        written = pickled.parent.parent / "fr_json" / f"rank{pickled.name.rpartition('_')[2]}.json"
        if written.exists():
            ids = [
                sorted(
                    next(read(io.BytesIO(p.read_bytes()), Source(p.name, None, 1), Limits()).batches).rows["span_id"].to_pylist()
                )
                for p in (pickled, written)
            ]
            assert ids[0] == ids[1]
