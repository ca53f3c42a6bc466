"""Bodies as users write them, and the exact rows they become: the worked examples of docs/formats.md."""

import json

from tests.support.naive_ingest import take


def shown(admitted):
    """Rows as a reader would write them: no absent columns, ids in hex, no receive time."""
    rows = []
    for row in admitted.events.to_pylist():
        row.pop("received_ns")
        short = {k: v.hex() if isinstance(v, bytes) else v for k, v in row.items() if v not in (None, False, 0)}
        rows.append(
            {k: [x.hex() if isinstance(x, bytes) else x for x in v] if isinstance(v, list) else v for k, v in short.items()}
        )
    return rows


def test_ndjson_in_full_form():
    body = b"""
{"job":"llm","rank":3,"host":"node0","lane":"cuda:3","name":"all_reduce","kind":"collective","step":7,"start_ns":1700000000000000001,"end_ns":1700000000000500002,"span_id":"00000000000000a1","group":"dp0","seq":41,"group_ranks":[1,3],"bytes":1048576,"dtype":"bfloat16","attrs":{"bucket":2}}
{"job":"llm","rank":3,"host":"node0","name":"forward","start_ns":1700000000000000001,"end_ns":null,"span_id":"00000000000000A2","layer":5}
"""
    assert shown(take("events", "application/x-ndjson", body)) == [
        {
            "job": "llm",
            "rank": 3,
            "host": "node0",
            "clock": "node0",
            "lane": "cuda:3",
            "name": "all_reduce",
            "kind": "collective",
            "start_ns": 1700000000000000001,
            "end_ns": 1700000000000500002,
            "step": 7,
            "group": "dp0",
            "seq": 41,
            "group_ranks": [1, 3],
            "op": "all_reduce",
            "bytes": 1048576,
            "dtype": "bfloat16",
            "span_id": "00000000000000a1",
            "attrs": '{"bucket":2}',
        },
        {
            "job": "llm",
            "rank": 3,
            "host": "node0",
            "clock": "node0",
            "lane": "main",
            "name": "forward",
            "kind": "compute",
            "start_ns": 1700000000000000001,
            "span_id": "00000000000000a2",
            "attrs": '{"layer":5}',
        },
    ]


def test_seed_form():
    pair = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331", "parent_span_id": None, "rank": 3}
    start = pair | {
        "event": "allreduce_start",
        "timestamp_ns": 1700000000000000000,
        "attrs": {"step": 5, "group": "dp", "seq": 7, "mb": 1},
    }
    end = pair | {"event": "allreduce_end", "timestamp_ns": 1700000000000400000, "attrs": {"bytes": 64}}
    moment = {"event": "epoch", "rank": 0, "timestamp_ns": 1700000000000000000, "attrs": {}}
    admitted = take("events", "application/json", json.dumps([start, end, moment]).encode(), job="llm")
    both = {
        "job": "llm",
        "clock": "rank:3",
        "lane": "main",
        "name": "allreduce",
        "kind": "collective",
        "op": "all_reduce",
        "rank": 3,
    }
    ids = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331"}
    rows = shown(admitted)
    assert rows[0] == both | ids | {"start_ns": 1700000000000000000, "step": 5, "group": "dp", "seq": 7, "attrs": '{"mb":1}'}
    assert rows[1] == both | ids | {"end_ns": 1700000000000400000, "bytes": 64, "flags": 8}
    assert rows[2].pop("span_id")
    moment_ns = {"start_ns": 1700000000000000000, "end_ns": 1700000000000000000}
    assert rows[2] == {"job": "llm", "clock": "rank:0", "lane": "main", "name": "epoch", "kind": "mark"} | moment_ns


def test_seed_form_without_any_job():
    body = b'{"event":"forward_start","rank":0,"timestamp_ns":5,"span_id":"b7ad6b7169203331","attrs":{}}'
    assert shown(take("events", "application/json", body))[0]["job"] == "default"


def test_seed_form_that_cannot_be_read():
    good = {"event": "x_start", "rank": 0, "timestamp_ns": 5, "span_id": "b7ad6b7169203331"}
    changes = [
        ("missing_event", {"event": None}),
        ("missing_event", {"event": ""}),
        ("bad_type", {"event": 5}),
        ("bad_type", {"timestamp_ns": "5"}),
        ("bad_type", {"timestamp_ns": 5.0}),
        ("time_range", {"timestamp_ns": -1}),
        ("time_range", {"timestamp_ns": 2**63}),
        ("start_zero", {"timestamp_ns": 0}),
        ("missing_start", {"timestamp_ns": None}),
        ("missing_span_id", {"span_id": None}),
        ("missing_rank", {"rank": None}),
    ]
    body = json.dumps([good | change for _, change in changes]).encode()
    admitted = take("events", "application/json", body, job="j")
    assert [r.reason for r in admitted.rejections] == [reason for reason, _ in changes]


def test_attributes_named_like_seed_fields_stay_in_a_full_event():
    body = b'{"job":"j","rank":0,"name":"a","start_ns":5,"end_ns":6,"event":"oom","timestamp_ns":"x"}'
    assert shown(take("events", "application/json", body))[0]["attrs"] == '{"event":"oom","timestamp_ns":"x"}'


def test_otlp_json_with_resource_attributes():
    body = json.dumps(
        {
            "resourceSpans": [
                {
                    "resource": {
                        "attributes": [
                            {"key": "service.name", "value": {"stringValue": "trainer"}},
                            {"key": "host.name", "value": {"stringValue": "node0"}},
                            {"key": "crossrank.rank", "value": {"intValue": "3"}},
                        ]
                    },
                    "scopeSpans": [
                        {
                            "scope": {"name": "train"},
                            "spans": [
                                {
                                    "traceId": "5B8EFFF798038103D269B633813FC60C",
                                    "spanId": "EEE19B7EC3C1B174",
                                    "name": "all_reduce",
                                    "kind": 1,
                                    "startTimeUnixNano": "1700000000000000001",
                                    "endTimeUnixNano": 1700000000000500002,
                                    "attributes": [
                                        {"key": "crossrank.group", "value": {"stringValue": "dp0"}},
                                        {"key": "seq", "value": {"intValue": 41}},
                                        {"key": "note", "value": {"stringValue": "ok"}},
                                    ],
                                }
                            ],
                        }
                    ],
                }
            ]
        }
    ).encode()
    assert shown(take("traces", "application/json", body)) == [
        {
            "job": "trainer",
            "rank": 3,
            "host": "node0",
            "clock": "node0",
            "lane": "main",
            "name": "all_reduce",
            "kind": "collective",
            "start_ns": 1700000000000000001,
            "end_ns": 1700000000000500002,
            "group": "dp0",
            "seq": 41,
            "op": "all_reduce",
            "trace_id": "5b8efff798038103d269b633813fc60c",
            "span_id": "eee19b7ec3c1b174",
            "attrs": '{"note":"ok"}',
            "otel": '{"kind":1,"resource":{"attributes":{"crossrank.rank":3,"host.name":"node0","service.name":"trainer"}},"scope":{"name":"train"}}',
        }
    ]
