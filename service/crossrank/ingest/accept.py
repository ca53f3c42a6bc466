"""The one function the API and the log replay call: a request as received to admitted events.

It is pure: the same post gives the same events whenever it is decoded again, which is what lets the write-ahead log keep bodies
as they were sent.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from crossrank.errors import UnsupportedType
from crossrank.ingest import arrow_stream, events_fast, events_json, otlp_fast, otlp_json, otlp_json_fast, otlp_protobuf
from crossrank.ingest.admit import admit
from crossrank.ingest.body import decompress
from crossrank.limits import Limits
from crossrank.model.decoded import Decoded
from crossrank.model.post import Admitted, Post

JSON_TYPE: Final = "application/json"
PROTOBUF_TYPE: Final = "application/x-protobuf"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
NDJSON_TYPES: Final = frozenset(
    {
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
    }
)

Decoder: TypeAlias = Literal["compiled", "python"]
"""Which decoders read a request: compiled ones, or the plain ones that they are checked against. The events are the same."""


def media_type(content_type: str) -> str:
    """The bare type of a Content-Type header: lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()


def accept(post: Post, limits: Limits, decoder: Decoder = "compiled") -> Admitted:
    """Decompresses, decodes and admits one request; an empty /v1/events body of any supported type holds no events.

    Raises UnsupportedType, BodyTooLarge, UndecodableBody.
    """
    kind = media_type(post.content_type)
    decode = {"events": _decode_events, "traces": _decode_traces}[post.route]
    return admit(decode(kind, post, limits, decoder), post, limits)


def _decode_events(kind: str, post: Post, limits: Limits, decoder: Decoder) -> Decoded:
    if kind not in NDJSON_TYPES and kind not in (JSON_TYPE, ARROW_TYPE):
        raise UnsupportedType(
            f"Content-Type {kind[:80]!r} is not supported here; use application/x-ndjson, {JSON_TYPE} or {ARROW_TYPE}"
        )
    body = decompress(post.body, post.content_encoding, limits.body_bytes) if post.body else b""
    if kind == ARROW_TYPE:
        return arrow_stream.decode(body, limits)
    if decoder == "python":
        return (events_json.decode_json if kind == JSON_TYPE else events_json.decode_lines)(body, post.job, limits)
    return (events_fast.decode_json if kind == JSON_TYPE else events_fast.decode_lines)(body, post.job, limits)


def _decode_traces(kind: str, post: Post, limits: Limits, decoder: Decoder) -> Decoded:
    if kind not in (PROTOBUF_TYPE, JSON_TYPE):
        raise UnsupportedType(f"Content-Type {kind[:80]!r} is not supported here; use {PROTOBUF_TYPE} or {JSON_TYPE}")
    body = decompress(post.body, post.content_encoding, limits.body_bytes) if post.body else b""
    if kind == JSON_TYPE:
        return (otlp_json_fast if decoder == "compiled" else otlp_json).decode(body, post.job, limits)
    return (otlp_fast if decoder == "compiled" else otlp_protobuf).decode(body, post.job, limits)
