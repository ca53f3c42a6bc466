"""One int64 for several integer columns, so that grouping rows is one sort of one array.

Columns are packed as digits of a mixed-radix number. A column whose range would overflow (a hostile seq of 2**62) is first
replaced by the ranks of its distinct values. Order is preserved: sorting by the key sorts by the columns, first one first.
"""

from __future__ import annotations

import numpy as np

from crossrank.model.arrays import BoolArray, Int64Array

_KEY_BITS = 62


def pack_keys(*columns: np.ndarray) -> Int64Array:
    """[n] keys of n rows; equal keys mean equal values in all columns."""
    digits = [_digits(c) for c in columns]
    if sum(_bits(d) for d in digits) > _KEY_BITS:
        digits = [np.unique(d, return_inverse=True)[1].astype(np.int64) for d in digits]
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for d in digits:
        if _bits(key) + _bits(d) > _KEY_BITS:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
        key = (key << _bits(d)) | d
    return key


def first_of_runs(sorted_key: np.ndarray) -> BoolArray:
    """True where a run of equal keys begins."""
    first = np.ones(len(sorted_key), dtype=np.bool_)
    first[1:] = sorted_key[1:] != sorted_key[:-1]
    return first


def place_in_run(first: BoolArray) -> Int64Array:
    """0, 1, 2, … within each run."""
    index = np.arange(len(first), dtype=np.int64)
    return index - np.maximum.accumulate(np.where(first, index, 0))


def _digits(column: np.ndarray) -> Int64Array:
    if len(column) == 0:
        return np.zeros(0, dtype=np.int64)
    low, high = int(column.min()), int(column.max())
    if high - low >= 1 << _KEY_BITS:
        return np.unique(column, return_inverse=True)[1].astype(np.int64)
    return column.astype(np.int64) - low


def _bits(digits: Int64Array) -> int:
    return int(digits.max()).bit_length() if len(digits) else 0
