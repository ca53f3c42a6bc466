"""Recorded requests and event files of real clients: everything taken, nothing altered."""

import gzip
import json

import pyarrow.compute as pc

from tests.support.naive_ingest import take


def test_recorded_event_files(recordings):
    files = sorted((recordings / "gloo").glob("*/events/*.ndjson.gz"))
    assert files
    for file in files:
        body = file.read_bytes()
        sent = [json.loads(line) for line in gzip.decompress(body).splitlines()]
        admitted = take("events", "application/x-ndjson", body, encoding="gzip")
        assert (admitted.rejections, admitted.warnings) == ((), ())
        assert admitted.events.num_rows == len(sent), file
        for name in (
            "job",
            "rank",
            "host",
            "lane",
            "name",
            "kind",
            "step",
            "start_ns",
            "end_ns",
            "group",
            "seq",
            "bytes",
            "dtype",
            "peer",
        ):
            assert admitted.events.column(name).to_pylist() == [event.get(name) for event in sent], (file, name)
        assert admitted.events.column("span_id").to_pylist() == [bytes.fromhex(event["span_id"]) for event in sent]
        attrs = [json.loads(text) if text else None for text in admitted.events.column("attrs").to_pylist()]
        assert attrs == [event.get("attrs") for event in sent]


def test_the_empty_file_of_a_killed_rank_holds_no_events(recordings):
    empty = recordings / "gloo" / "desync_skip_ddp_w4" / "events" / "rank2.ndjson.gz"
    admitted = take("events", "application/x-ndjson", empty.read_bytes(), encoding="gzip")
    assert (admitted.events.num_rows, admitted.rejections) == (0, ())


def test_recorded_otlp_requests(recordings):
    """The committed sample holds none; the stock exporter's own tests stand for them there."""
    for meta in sorted(recordings.glob("otlp/*/*.json")):
        headers = {key.lower(): value for key, value in json.loads(meta.read_text())["headers"]}
        admitted = take(
            "traces", headers["content-type"], meta.with_suffix(".body").read_bytes(), encoding=headers.get("content-encoding", "")
        )
        assert (admitted.events.num_rows, admitted.rejections, admitted.warnings) == (38, (), ())
        events = admitted.events
        assert events.column("rank").unique().to_pylist() == [int(meta.stem)]
        assert events.column("job").unique().to_pylist() == ["trainer"]
        assert events.column("host").unique().to_pylist() == [f"host{int(meta.stem) // 2}"]
        assert sorted(events.column("step").unique().to_pylist()) == [0, 1, 2, 3]
        reduces = events.filter(pc.equal(events.column("kind"), "collective")).to_pylist()
        assert {(r["op"], r["group"], tuple(r["group_ranks"]), r["dtype"]) for r in reduces} == {
            ("all_reduce", "world", (0, 1, 2, 3), "float32")
        }
        assert sorted(r["seq"] for r in reduces) == list(range(1, 15))
