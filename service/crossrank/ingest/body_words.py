"""Words of a body by code: what stands in the body, and words added beside it, as columns in which every word is made once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

from crossrank.ingest.borrowed import borrowed
from crossrank.model.arrays import BoolArray, Int64Array


class BodyWords:
    """Codes below `len(start)` are stretches of the body; further ones are words added here."""

    def __init__(self, body: bytes, start: Int64Array, size: Int64Array) -> None:
        self._body, self._start, self._size = body, start, size
        self._added: list[str] = []
        self._code: dict[str, int] = {}
        self._instead: dict[int, str] = {}

    def add(self, word: str) -> int:
        """A code for a word that need not stand in the body."""
        code = self._code.get(word)
        if code is None:
            code = self._code[word] = self._start.size + len(self._added)
            self._added.append(word)
        return code

    def reads_as(self, code: int, text: str) -> None:
        """Says that a stretch of the body stands for another text than its bytes show."""
        self._instead[code] = text

    def text(self, code: int) -> str:
        """The text of a code."""
        texts = self._start.size
        if code >= texts:
            return self._added[code - texts]
        if code in self._instead:
            return self._instead[code]
        at = int(self._start[code])
        return self._body[at : at + int(self._size[code])].decode()

    def column(self, codes: Int64Array | None, rows: int) -> pa.DictionaryArray:
        """Words of many rows, null where the code is negative; None stands for all negative."""
        if codes is None:
            return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), pa.array([], pa.string()))
        places = np.full(self._start.size + len(self._added), -1, np.int32)
        place, distinct = np.empty(rows, np.int32), np.empty(min(rows, places.size), np.int64)
        found = _dense(codes, places, place, distinct)
        words = pa.array([self.text(code) for code in distinct[:found].tolist()], pa.string())
        valid = np.packbits(place >= 0, bitorder="little")
        np.maximum(place, 0, out=place)  # Arrow looks up the numbers of null places too when it joins dictionaries
        indices = pa.Array.from_buffers(pa.int32(), rows, [pa.py_buffer(valid), pa.py_buffer(place)])
        return pa.DictionaryArray.from_arrays(indices, words, safe=False)


def nullable(values: np.ndarray, absent: BoolArray) -> pa.Array:
    """The values as a column, null where absent."""
    return pa.array(values, mask=absent) if absent.any() else pa.array(values)


@njit(cache=True, nogil=True)
def _dense(codes: np.ndarray, places: np.ndarray, place: np.ndarray, distinct: np.ndarray) -> Any:
    """Numbers the codes that occur from 0 in the order of their appearance; -1 stays. Returns how many there are."""
    codes, places, place, distinct = borrowed(codes), borrowed(places), borrowed(place), borrowed(distinct)
    found = 0
    for row in range(codes.size):
        code = codes[row]
        if code >= 0 and places[code] < 0:
            places[code], distinct[found] = found, code
            found += 1
        place[row] = places[code] if code >= 0 else -1
    return found
