"""Why an event was not admitted: every reason declared once, with the sentence its sender reads.

A rejection concerns one event; the rest of the request is stored. Reasons are counter labels, so the set is closed and names
never contain anything a sender chose; what was wrong in particular (which column, which value) stands in `Rejection.detail`.
"""

from __future__ import annotations

from typing import Final

BAD_JSON: Final = "bad_json"
NOT_AN_OBJECT: Final = "not_an_object"
BAD_TYPE: Final = "bad_type"
OUT_OF_RANGE: Final = "out_of_range"
TOO_DEEP: Final = "too_deep"
TOO_LARGE: Final = "too_large"
TOO_LONG: Final = "too_long"
MISSING_JOB: Final = "missing_job"
BAD_JOB: Final = "bad_job"
MISSING_RANK: Final = "missing_rank"
MISSING_EVENT: Final = "missing_event"
MISSING_START: Final = "missing_start"
MISSING_SPAN_ID: Final = "missing_span_id"
START_ZERO: Final = "start_zero"
TIME_RANGE: Final = "time_range"
INVALID_TRACE_ID: Final = "invalid_trace_id"
INVALID_SPAN_ID: Final = "invalid_span_id"

REASONS: Final[dict[str, str]] = {
    BAD_JSON: "The line or element is not valid JSON (cut off, bad syntax, bad UTF-8 or a lone surrogate).",
    NOT_AN_OBJECT: "The line or element is valid JSON but not an object.",
    BAD_TYPE: "A field has a value of the wrong type; integers must be written as integers, never as floats.",
    OUT_OF_RANGE: "A number lies outside the range of its column.",
    TOO_DEEP: "Values are nested deeper than the limit.",
    TOO_LARGE: "The event alone is larger than the limit for one event.",
    TOO_LONG: "A host, clock, lane, kind, group, op or dtype is longer than the limit; cutting it could make two of them one.",
    MISSING_JOB: "The event names no job, and the request neither (field `job`, header X-Crossrank-Job, attribute crossrank.job).",
    BAD_JOB: "The job name is empty, too long, or contains control characters.",
    MISSING_RANK: "The event has no rank.",
    MISSING_EVENT: "An event with `timestamp_ns` needs `event`, a name that ends in `_start` or `_end` or stands for a moment.",
    MISSING_START: "The event has neither a start nor an end time.",
    MISSING_SPAN_ID: "An open span or one half of a start/end pair needs a span_id, so that its other end can be recognised.",
    START_ZERO: "The start time is 0: the clock was not read.",
    TIME_RANGE: "A time is negative or above 2^63-1 ns.",
    INVALID_TRACE_ID: "trace_id is not 16 bytes as 32 hex digits (base64 is not accepted), or is all zero.",
    INVALID_SPAN_ID: "span_id is not 8 bytes as 16 hex digits (base64 is not accepted), or is all zero.",
}
