"""Equal rows of an integer matrix found by hashing, compiled: work that depends on a few values is done once for each combination."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import njit

from crossrank.ingest.borrowed import borrowed
from crossrank.model.arrays import Int64Array

_PROBES: Final = 64
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def distinct_rows(matrix: Int64Array) -> tuple[Int64Array, Int64Array]:
    """(code of each row, first row of each code). Rows of one code are equal; equal rows nearly always have one code.

    Senders may choose rows whose hashes collide; after `_PROBES` places such a row gets a code of its own.
    """
    n = len(matrix)
    codes, firsts = np.empty(n, np.int64), np.empty(n, np.int64)
    slots = np.zeros(2 << max(4, (n - 1).bit_length() if n else 0), np.int64)
    found = _distinct_rows(matrix, slots, codes, firsts)
    return codes, firsts[:found]


@njit(cache=True, nogil=True)
def _distinct_rows(matrix: np.ndarray, slots: np.ndarray, codes: np.ndarray, firsts: np.ndarray) -> Any:
    matrix, slots, codes, firsts = borrowed(matrix), borrowed(slots), borrowed(codes), borrowed(firsts)
    found = 0
    mask = slots.size - 1
    for row in range(matrix.shape[0]):
        if row > 0 and _same(matrix, row, row - 1):
            codes[row] = codes[row - 1]
            continue
        h = np.uint64(0)
        for column in range(matrix.shape[1]):
            h = (h ^ np.uint64(matrix[row, column])) * _MIX
            h ^= h >> np.uint64(31)
        slot = np.int64(h & np.uint64(mask))
        code = -1
        for _ in range(_PROBES):
            if slots[slot] == 0:
                slots[slot] = found + 1
                break
            if _same(matrix, row, firsts[slots[slot] - 1]):
                code = slots[slot] - 1
                break
            slot = (slot + 1) & mask
        if code < 0:
            code = found
            firsts[found] = row
            found += 1
        codes[row] = code
    return found


@njit(cache=True, nogil=True, forceinline=True)
def _same(matrix: np.ndarray, a: int, b: int) -> bool:
    for column in range(matrix.shape[1]):  # noqa: SIM110  # compiled
        if matrix[a, column] != matrix[b, column]:
            return False
    return True
