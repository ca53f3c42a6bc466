"""Compiles the decoders' kernels, so that no request pays for it.

Compiling takes some twenty seconds of one core; the result is kept on disk beside the modules (numba's cache) and loaded in well
under a second afterwards. `crossrank warmup` calls this when the package is installed.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from crossrank.ingest import events_fast, otlp_fast, otlp_json_fast
from crossrank.limits import Limits

# One span with a text, a double, an integer, an array, a group of ranks, a rank as text, a kind, a flag and a value.
_OTLP: Final = b64decode(
    "CuMBChcKFQoOY3Jvc3NyYW5rLnJhbmsSAwoBMRLHARLEAQoQAQEBAQEBAQEBAQEBAQEBARIIAgICAgICAgIqB2ZvcndhcmQwATkFAAAAAAAAAEEHAAAAAAAAAEoK"
    "CgF0EgUKA3R4dEoOCgFkEgkhAAAAAAAA4D9KBwoBaRICGAVKDwoBYRIKKggKAhgBCgIYAkoOCgRraW5kEgYKBGNvcHlKDgoIaXNfYXN5bmMSAhABShIKBXZhbHVl"
    "EgkhAAAAAAAA8D9KGQoLZ3JvdXBfcmFua3MSCioICgIYAAoCGAGFAQABAAA="
)

_EVENT: Final = (
    b'{"job":"j","rank":1,"trace_id":"01010101010101010101010101010101","span_id":"0202020202020202","start_ns":5,"end_ns":7,'
    b'"group_ranks":[0,1],"value":0.5,"kind":"copy","is_async":true,"attrs":{"t":"txt","e":"\\n","d":0.5,"i":5,"a":[1]}}\n'
)
_OTLP_JSON: Final = (
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"01010101010101010101010101010101","spanId":"0202020202020202","kind":1,'
    b'"startTimeUnixNano":"5","attributes":[{"key":"d","value":{"doubleValue":0.5}},{"key":"t","value":{"stringValue":"x"}}]}]}]}]}'
)


def warm_up() -> None:
    """Loads or compiles every kernel by decoding tiny bodies."""
    otlp_fast.decode(_OTLP, None, Limits())
    events_fast.decode_lines(_EVENT, None, Limits())
    otlp_json_fast.decode(_OTLP_JSON, None, Limits())
