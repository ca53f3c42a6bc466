"""Mutated bodies of every format by the ten thousand: never anything but events or one of the three faults.

A short share of the campaign runs with the suite; `make test-long` runs all of it (about a minute a format on one core).
"""

import random

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from crossrank.errors import BodyTooLarge, UndecodableBody, UnsupportedType
from crossrank.ingest.reasons import REASONS
from crossrank.limits import Limits
from tests.support.naive_ingest import arrow_stream, every_body, otlp_json, otlp_request, post, take

EVENTS = [
    {
        "job": "j", "rank": i, "name": "all_reduce", "kind": "collective", "op": "all_reduce", "group": "dp", "seq": i, "step": 1,
        "group_ranks": [0, 1], "start_ns": 10**18 + i, "end_ns": 10**18 + i + 5, "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "span_id": f"{i + 1:016x}", "parent_span_id": "b7ad6b7169203331", "attrs": {"x": 1, "f": 0.25, "w": "é", "y": [1, {"z": None}]},
    }
    for i in range(4)
]  # fmt: skip
LIMITS = Limits(body_bytes=1 << 20, events_per_body=10_000)
POSTS = every_body(EVENTS)
FORMATS = {
    "protobuf": POSTS["otlp protobuf"],
    "otlp json": post("traces", "application/json", otlp_json(otlp_request(EVENTS))),
    "ndjson": POSTS["ndjson"],
    "json": POSTS["object"],
    "arrow": post("events", "application/vnd.apache.arrow.stream", arrow_stream(take("events", "application/json", POSTS["array"].body).events)),
    "gzip": POSTS["gzip"],
    "zstd": POSTS["zstd"],
    "deflate": POSTS["deflate"],
}  # fmt: skip
PIECES = (
    b"\xff",
    b"\0",
    b"\x80",
    b"\x7f",
    b'"',
    b"{",
    b"}",
    b"[",
    b",",
    b"\\u0000",
    b"\\ud800",
    b"9" * 4301,
    b"NaN",
    b"1e400",
    b"\n",
    b"\x0a\x00",
    b"\x0b",
)


def mutated(body: bytes, rng: random.Random) -> bytes:
    """One to eight small edits, or a cut."""
    edited = bytearray(body)
    if rng.random() < 0.1:
        return bytes(edited[: rng.randrange(len(edited))])
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        at = rng.randrange(len(edited)) if edited else 0
        match rng.randrange(5):
            case 0 if edited:
                edited[at] ^= 1 << rng.randrange(8)
            case 1:
                edited[at : at + 1] = rng.choice(PIECES)
            case 2:
                del edited[at : at + rng.randrange(1, 9)]
            case 3:
                edited[at:at] = edited[at : at + rng.randrange(1, 65)]
            case _:
                other = rng.randrange(len(edited) + 1)
                edited[at : at + 8] = edited[other : other + 8]
    return bytes(edited)


def run(name: str, seed: int, bodies: int) -> None:
    good = FORMATS[name]
    rng = random.Random(seed)
    for _ in range(bodies):
        body = mutated(good.body, rng)
        try:
            admitted = take(good.route, good.content_type, body, encoding=good.content_encoding, limits=LIMITS)
        except (UndecodableBody, BodyTooLarge, UnsupportedType) as fault:
            admitted = None
            refused = type(fault)
        else:
            assert {r.reason for r in admitted.rejections} <= set(REASONS)
        if name != "protobuf":
            continue
        try:
            spans = sum(len(s.spans) for r in ExportTraceServiceRequest.FromString(body).resource_spans for s in r.scope_spans)
        except DecodeError:
            assert admitted is None, body.hex()
            assert refused is UndecodableBody
        else:
            assert admitted is not None, body.hex()
            assert admitted.events.num_rows + len(admitted.rejections) == spans


@pytest.mark.parametrize("name", FORMATS)
def test_a_share_of_the_campaign(name):
    run(name, seed=1, bodies=60)


@pytest.mark.long
@pytest.mark.parametrize("name", FORMATS)
def test_the_campaign(name):
    for seed in range(2, 12):
        run(name, seed, bodies=1000)
