"""Trace and span ids: hex text to fixed-width bytes, strictly.

Ids in JSON are hex of either case and nothing else. Base64 ids, a frequent client bug, have other lengths or letters and are
refused rather than stored as garbage. An all-zero id means "no id".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
_HEX: Final = re.compile(r"[0-9a-fA-F]*")


def hex_id(text: str, width: int) -> bytes | None:
    """The id as `width` bytes, or None when the text is not exactly that many bytes in hex, or all zero."""
    if len(text) != 2 * width or not _HEX.fullmatch(text):
        return None
    raw = bytes.fromhex(text)
    return raw if any(raw) else None


def is_unset(text: str) -> bool:
    """An id that says "none": empty or all zeros."""
    return not text.strip("0")


def hex_column(texts: Sequence[str | None], width: int) -> tuple[pa.Array, BoolArray]:
    """Ids of many events as a fixed-size binary array, and a mask of those that are not valid ids (null in the array)."""
    joined = _joined(texts, width)
    if joined is not None:
        ids = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(texts), [None, pa.py_buffer(joined)])
        return ids, np.zeros(len(texts), dtype=np.bool_)
    values = [hex_id(text, width) if text is not None else None for text in texts]
    bad = [text is not None and value is None for text, value in zip(texts, values, strict=True)]
    return pa.array(values, type=pa.binary(width)), np.array(bad, dtype=np.bool_)


def _joined(texts: Sequence[str | None], width: int) -> bytes | None:
    """All ids in one piece when every one is present and valid: the usual case, with no work per id."""
    try:
        joined = "".join(texts)  # type: ignore[arg-type]  # a None among them is what the except is for
    except TypeError:
        return None
    if len(joined) != 2 * width * len(texts) or not _HEX.fullmatch(joined) or set(map(len, texts)) - {2 * width}:  # type: ignore[arg-type]
        return None
    raw = bytes.fromhex(joined)
    return raw if np.frombuffer(raw, dtype=np.int64).reshape(-1, width // 8).any(axis=1).all() else None
