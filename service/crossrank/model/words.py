"""Strings of a column as codes into the sorted distinct words, so that codes do not depend on the order of delivery.

A sender that puts a counter or an address into its span names makes a new word with every event. Each distinct word costs a
Python string, a place in every table by name, and a line in every answer that lists names, so a job's words can be capped: the
most frequent ones stay (ties by the word itself, so that the same events keep the same words) and all others become FOLDED.
Only what is derived is folded; the stored events keep their own names.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import Int32Array

NO_CODE: Final = -1  # code of a null string in a dictionary-coded array, as in pandas and Arrow
FOLDED: Final = "(other)"


def word_codes(column: pa.Array) -> tuple[Int32Array, tuple[str, ...]]:
    """[n] codes into the sorted words that occur; NO_CODE for null."""
    raw, words = _encoded(column)
    return _recoded(raw, words, {words[i] for i in np.unique(raw).tolist() if i >= 0})


def folded_codes(column: pa.Array, most: int) -> tuple[Int32Array, tuple[str, ...], int]:
    """As `word_codes` with at most `most` words beside FOLDED, and how many events were folded."""
    raw, words = _encoded(column)
    counts = np.bincount(raw[raw >= 0], minlength=len(words))
    if np.count_nonzero(counts) <= most:
        return *_recoded(raw, words, {words[i] for i in np.flatnonzero(counts).tolist()}), 0
    by_word = np.argsort(np.array(words, dtype=object), kind="stable")
    kept = by_word[np.argsort(-counts[by_word], kind="stable")[:most]]
    codes, used = _recoded(raw, words, {*(words[i] for i in kept.tolist()), FOLDED}, other=FOLDED)
    return codes, used, int(counts.sum() - counts[kept].sum())


def _encoded(column: pa.Array) -> tuple[Int32Array, list[str]]:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    raw = column.indices.fill_null(NO_CODE).to_numpy(zero_copy_only=False).astype(np.int32)
    return raw, column.dictionary.to_pylist()


def _recoded(raw: Int32Array, words: list[str], used: set[str], other: str | None = None) -> tuple[Int32Array, tuple[str, ...]]:
    """Codes into the sorted `used`; a word that is not among them becomes `other`, or NO_CODE."""
    ordered = sorted(used)
    place = {word: i for i, word in enumerate(ordered)}
    missing = NO_CODE if other is None else place[other]
    recode = np.array([*(place.get(w, missing) for w in words), NO_CODE], dtype=np.int32)
    return recode[raw], tuple(ordered)
