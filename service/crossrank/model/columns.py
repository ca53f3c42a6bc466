"""The one event schema: every format decodes to it, the memtable and the Parquet segments hold it, the export shows it.

A column says its Arrow type, its unit and one sentence of meaning; `schemas/` is generated from this table. Low-cardinality
strings are dictionary-encoded so that comparing names is comparing integers. `attrs` and `otel` are JSON text: types survive
(int64 stays an integer of any size, nested values stay nested) and a column costs nothing where it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

WORD: Final = pa.dictionary(pa.int32(), pa.string())  # a low-cardinality string


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the event schema. `unit` is empty where the value has none; `sent` is false where we add it."""

    name: str
    type: pa.DataType
    nullable: bool
    unit: str
    meaning: str
    sent: bool = True


EVENT_COLUMNS: Final[tuple[Column, ...]] = (
    Column("job", WORD, False, "", "The training job."),
    Column("attempt", pa.int32(), False, "", "Restart count of the job; 0 is the first start."),
    Column("rank", pa.int32(), False, "", "Global rank of the process."),
    Column("host", WORD, True, "", "Machine the rank runs on."),
    Column("clock", WORD, False, "", "Clock domain of the stamps: the given one, else the host, else `rank:N`."),
    Column("lane", WORD, False, "", "Thread or device stream on which spans are ordered."),
    Column("name", WORD, False, "", "What the user calls it."),
    Column("kind", WORD, False, "", "One of the event kinds, or `other`."),
    Column(
        "start_ns",
        pa.int64(),
        True,
        "ns since epoch",
        "Start by the sender's clock; null only until the start half of a pair comes.",
    ),
    Column("end_ns", pa.int64(), True, "ns since epoch", "End by the sender's clock; null while the span is open."),
    Column("step", pa.int64(), True, "", "Optimizer step."),
    Column("group", WORD, True, "", "Process group of a communication."),
    Column(
        "seq",
        pa.int64(),
        True,
        "",
        "Number naming the same operation on all ranks of the group; for messages per (group, src, dst).",
    ),
    Column("group_ranks", pa.list_(pa.int32()), True, "", "Global ranks of the group, when the sender knew them."),
    Column("op", WORD, True, "", "Communication operation in its standard name, e.g. `all_reduce`."),
    Column("peer", pa.int32(), True, "", "The other global rank of a send or receive; the root of a rooted collective."),
    Column("bytes", pa.int64(), True, "bytes", "Message size."),
    Column("dtype", WORD, True, "", "Element type of the message."),
    Column("is_async", pa.bool_(), False, "", "The span is the launch of an operation, not the operation itself."),
    Column("trace_id", pa.binary(16), True, "", "W3C trace id."),
    Column("span_id", pa.binary(8), False, "", "Identifies the event within (job, attempt, rank)."),
    Column("parent_span_id", pa.binary(8), True, "", "Enclosing or causing span."),
    Column("links", pa.list_(pa.binary(8)), True, "", "Span ids of explicit cause edges."),
    Column("value", pa.float64(), True, "", "Value of a metric event."),
    Column("attrs", pa.string(), True, "", "Everything else that was sent, a JSON object with its types kept."),
    Column(
        "otel",
        pa.string(),
        True,
        "",
        "What only OpenTelemetry has: resource, scope, events, links, status, trace_state, flags, kind, dropped counts; JSON.",
    ),
    Column("flags", pa.int32(), False, "bits", "Doubts about the event, see EventFlag.", sent=False),
    Column("received_ns", pa.int64(), False, "ns since epoch", "When the service received it, by the service's clock.", sent=False),
)

EVENT_SCHEMA: Final = pa.schema(
    [pa.field(c.name, c.type, c.nullable, metadata={"unit": c.unit, "meaning": c.meaning}) for c in EVENT_COLUMNS]
)

# Identity of an event: the same values name the same event however often and in whatever form it is sent.
IDENTITY: Final[tuple[str, ...]] = ("job", "attempt", "rank", "span_id")
