"""A column of low-cardinality strings as codes into distinct words: checks and changes are made once a word, not once a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray, Int32Array
from crossrank.model.attrs import cut_text


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array; nothing is copied where it is one already."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@dataclass(frozen=True, slots=True)
class Words:
    """codes: [rows] into `words`, negative where the value is absent. Words may repeat until `array` merges them."""

    codes: Int32Array
    words: tuple[str, ...]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Words:
        """A string or dictionary-coded column."""
        array = one_chunk(column)
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        indices = array.indices
        if indices.null_count == len(indices):
            return cls(np.full(len(indices), -1, np.int32), ())
        if indices.null_count:
            indices = indices.fill_null(-1)
        return cls(
            codes=indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), words=tuple(array.dictionary.to_pylist())
        )

    @property
    def is_full(self) -> bool:
        """Every row has a word."""
        return not len(self.codes) or int(self.codes.min()) >= 0

    def where(self, word_mask: Sequence[bool]) -> BoolArray:
        """[rows] true where the row's word is marked; false where it has none."""
        if not any(word_mask):
            return np.zeros(len(self.codes), dtype=np.bool_)
        return np.array([*word_mask, False], dtype=np.bool_)[self.codes]

    def longer_than(self, limit_bytes: int) -> BoolArray:
        """[rows] true where the word's UTF-8 form is longer."""
        return self.where([len(word) * 4 > limit_bytes and len(word.encode()) > limit_bytes for word in self.words])

    def filled(self, word: str | None) -> Words:
        """Absent values replaced by `word` (None: left absent)."""
        if word is None or self.is_full:
            return self
        return Words(np.where(self.codes < 0, np.int32(len(self.words)), self.codes), (*self.words, word))

    def else_from(self, other: Words) -> Words:
        """Absent values taken from another column of the same rows."""
        if self.is_full or not other.words:
            return self
        if not self.words:
            return other
        theirs = np.where(other.codes < 0, np.int32(-1), other.codes + np.int32(len(self.words)))
        return Words(np.where(self.codes < 0, theirs, self.codes), self.words + other.words)

    def cleaned(self) -> Words:
        """NUL replaced by U+FFFD, as many readers end a text there; an empty word counts as absent."""
        if not any("\0" in word or not word for word in self.words):
            return self
        codes = np.where(self.where([not word for word in self.words]), np.int32(-1), self.codes)
        return Words(codes, tuple(word.replace("\0", "\N{REPLACEMENT CHARACTER}") for word in self.words))

    def cut_to(self, limit_bytes: int) -> Words:
        """Words cut to their longest prefix of whole characters within the limit."""
        if not any(len(word) * 4 > limit_bytes for word in self.words):
            return self
        return Words(self.codes, tuple(cut_text(word, limit_bytes) for word in self.words))

    def array(self) -> pa.DictionaryArray:
        """The column, each used word once and in sorted order, so that equal columns are equal whatever they came from."""
        used = np.zeros(len(self.words) + 1, dtype=np.bool_)
        used[self.codes] = True
        distinct = sorted({word for word, seen in zip(self.words, used.tolist(), strict=False) if seen})
        codes = self.codes
        if tuple(distinct) != self.words:
            place = {word: code for code, word in enumerate(distinct)}
            codes = np.array([*(place.get(word, -1) for word in self.words), -1], dtype=np.int32)[codes]
        words = pa.array(distinct, type=pa.string())
        if not used[-1]:
            return pa.DictionaryArray.from_arrays(pa.array(codes), words, safe=False)
        # Arrow looks up the numbers of null places too when it joins dictionaries: 0 there, since -1 would be read outside of them.
        valid = pa.py_buffer(np.packbits(codes >= 0, bitorder="little"))
        indices = pa.Array.from_buffers(pa.int32(), len(codes), [valid, pa.py_buffer(np.maximum(codes, 0))])
        return pa.DictionaryArray.from_arrays(indices, words, safe=False)
