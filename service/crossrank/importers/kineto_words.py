"""Distinct words of a trace as small numbers: names, categories and lanes are looked at once, and events carry their codes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from crossrank.importers.kineto_names import DEVICE_CATEGORIES
from crossrank.model.arrays import Int64Array


class Words(dict[str, int]):
    """Codes of distinct words, with a stable 63-bit hash of each."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hashes: list[int] = []

    def __missing__(self, word: str) -> int:
        code = self[word] = len(self.words)
        self.words.append(word)
        digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self._hashes.append(int.from_bytes(digest, "big") >> 1)
        return code

    def codes(self, words: list[str]) -> Int64Array:
        """[n] codes."""
        return np.fromiter(map(self.__getitem__, words), dtype=np.int64, count=len(words))

    def hashes(self) -> Int64Array:
        """[words] hashes by code."""
        return np.array(self._hashes, dtype=np.int64)

    def column(self, codes: Int64Array) -> pa.Array:
        """The words of codes, as strings."""
        used, place = np.unique(codes, return_inverse=True)
        return pa.array([self.words[code] for code in used.tolist()], type=pa.string()).take(pa.array(place))


class Lanes(dict[Any, Any]):
    """Codes of lanes by category, then pid, then tid: nested, because a key of three would be made anew for every event.

    On the device the pid is the device's number and the tid the stream's.
    """

    def __init__(self, words: Words, *outer: Any) -> None:
        super().__init__()
        self._words, self._outer = words, outer

    def __missing__(self, key: Any) -> Any:
        found = self._words[_lane(*self._outer, key)] if len(self._outer) == 2 else Lanes(self._words, *self._outer, key)
        self[key] = found
        return found


def _lane(category: str, pid: Any, tid: Any) -> str:
    if category in DEVICE_CATEGORIES:
        return f"cuda:{pid}:{tid}"
    if category in ("gpu_user_annotation", "cuda_sync"):
        return f"cuda:{pid}:{tid} {category}"  # lies over the stream's own work
    return tid if isinstance(tid, str) else f"cpu:{tid}"
