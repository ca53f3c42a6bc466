"""What the simulator encodes is what the service decodes: the same events over every format."""

import pyarrow as pa
import pytest

from crossrank.ingest.accept import accept
from crossrank.limits import Limits
from crossrank.model.post import Post
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.encode import ARROW_TYPE, NDJSON_TYPE, PROTOBUF_TYPE, arrow_stream, ndjson, otlp_protobuf
from crossrank.simulate.faults import Hang, WrongSize
from crossrank.simulate.job import simulate

CONFIG = JobConfig(
    dp=2, tp=2, pp=2, steps=3, ranks_per_host=2, clocks=ClockConfig(step_fraction=1.0, step_ns=(30_000_000, 60_000_000))
)


@pytest.mark.parametrize(
    ("route", "content_type", "encode"),
    [("events", NDJSON_TYPE, ndjson), ("events", ARROW_TYPE, arrow_stream), ("traces", PROTOBUF_TYPE, otlp_protobuf)],
    ids=["ndjson", "arrow", "otlp"],
)
def test_decoding_what_was_encoded_gives_the_same_events(route, content_type, encode):
    events = simulate(CONFIG, [Hang(1, 2), WrongSize(2, 1)], seed=1).events
    admitted = accept(Post(route, content_type, "", None, 7, encode(events)), Limits())
    assert admitted.rejections == ()
    back = admitted.events.sort_by([("rank", "ascending"), ("span_id", "ascending")]).to_pylist()
    sent = events.sort_by([("rank", "ascending"), ("span_id", "ascending")]).to_pylist()
    assert len(back) == len(sent)
    for b, s in zip(back, sent, strict=True):
        b["otel"] = None  # only OTLP has it
        assert b == {**s, "received_ns": 7}
    assert pa.types.is_dictionary(admitted.events.schema.field("name").type)
