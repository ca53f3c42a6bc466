"""Compiles the decoders' kernels, so that no request pays for it.

Compiling takes some twenty seconds of one core; the result is kept on disk beside the modules (numba's cache) and loaded in well
under a second afterwards. `crossrank warmup` calls this when the package is installed.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Final

from crossrank.ingest import otlp_fast
from crossrank.limits import Limits

# One span with a text, a double, an integer, an array, a group of ranks, a rank as text, a kind, a flag and a value.
_OTLP: Final = b64decode(
    "CuMBChcKFQoOY3Jvc3NyYW5rLnJhbmsSAwoBMRLHARLEAQoQAQEBAQEBAQEBAQEBAQEBARIIAgICAgICAgIqB2ZvcndhcmQwATkFAAAAAAAAAEEHAAAAAAAAAEoK"
    "CgF0EgUKA3R4dEoOCgFkEgkhAAAAAAAA4D9KBwoBaRICGAVKDwoBYRIKKggKAhgBCgIYAkoOCgRraW5kEgYKBGNvcHlKDgoIaXNfYXN5bmMSAhABShIKBXZhbHVl"
    "EgkhAAAAAAAA8D9KGQoLZ3JvdXBfcmFua3MSCioICgIYAAoCGAGFAQABAAA="
)


def warm_up() -> None:
    """Loads or compiles every kernel by decoding tiny bodies."""
    otlp_fast.decode(_OTLP, None, Limits())
