"""Decimal numbers of a JSON body to doubles: collected by the walks, read by the JSON library in one call."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numba import njit

from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import copy_words
from crossrank.ingest.json_kernels import Floats
from crossrank.model.arrays import Int64Array

_PAD: Final = 8  # whole words are copied
_FLOATS: Final = msgspec.json.Decoder(list[float])


def float_bits(body: bytes, floats: Floats) -> Int64Array:
    """The bits of all decimal numbers, read in one call."""
    n = int(floats.found[0])
    if not n:
        return np.empty(0, np.int64)
    buf = np.frombuffer(body, np.uint8)
    text = np.empty(int(floats.size[:n].sum()) + n + 1 + _PAD, np.uint8)
    _list_floats(buf, floats.start[:n], floats.size[:n], text)
    return np.array(_FLOATS.decode(text[:-_PAD].tobytes()), np.float64).view(np.int64)


@njit(cache=True, nogil=True)
def _list_floats(buf: np.ndarray, start: np.ndarray, size: np.ndarray, out: np.ndarray) -> None:
    """Writes the numbers as a JSON array."""
    buf, start, size, out = borrowed(buf), borrowed(start), borrowed(size), borrowed(out)
    at = 0
    for n in range(start.size):
        out[at] = 91 if n == 0 else 44
        at += 1
        if start[n] + size[n] + 8 <= buf.size:
            at = copy_words(buf, start[n], size[n], out, at)
            continue
        for i in range(size[n]):
            out[at + i] = buf[start[n] + i]
        at += size[n]
    out[at] = 93
