"""A column of low-cardinality strings as codes into distinct words: checks and changes are made once a word, not once a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import BoolArray, Int32Array
from crossrank.model.attrs import cut_text


@dataclass(frozen=True, slots=True)
class Words:
    """codes: [rows] into `words`, negative where the value is absent. Words may repeat until `array` merges them."""

    codes: Int32Array
    words: tuple[str, ...]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> Words:
        """A string or dictionary-coded column."""
        array = column.combine_chunks()
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        return cls(codes=codes, words=tuple(array.dictionary.to_pylist()))

    def where(self, word_mask: Sequence[bool]) -> BoolArray:
        """[rows] true where the row's word is marked; false where it has none."""
        return np.array([*word_mask, False], dtype=np.bool_)[self.codes]

    def longer_than(self, limit_bytes: int) -> BoolArray:
        """[rows] true where the word's UTF-8 form is longer."""
        return self.where([len(word) > limit_bytes or len(word.encode()) > limit_bytes for word in self.words])

    def filled(self, word: str | None) -> Words:
        """Absent values replaced by `word` (None: left absent)."""
        if word is None or (self.codes >= 0).all():
            return self
        return Words(np.where(self.codes < 0, np.int32(len(self.words)), self.codes), (*self.words, word))

    def else_from(self, other: Words) -> Words:
        """Absent values taken from another column of the same rows."""
        if (self.codes >= 0).all():
            return self
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
        return Words(self.codes, tuple(cut_text(word, limit_bytes) for word in self.words))

    def array(self) -> pa.DictionaryArray:
        """The column, each used word once and in sorted order, so that equal columns are equal whatever they came from."""
        used = np.zeros(len(self.words) + 1, dtype=np.bool_)
        used[self.codes] = True
        distinct = sorted({word for word, seen in zip(self.words, used.tolist(), strict=False) if seen})
        place = {word: code for code, word in enumerate(distinct)}
        recode = np.array([*(place.get(word, -1) for word in self.words), -1], dtype=np.int32)
        codes = recode[self.codes]
        # Arrow looks up the numbers of null places too when it joins dictionaries: 0 there, since -1 would be read outside of them.
        return pa.DictionaryArray.from_arrays(pa.array(np.maximum(codes, 0), mask=codes < 0), pa.array(distinct, type=pa.string()))
