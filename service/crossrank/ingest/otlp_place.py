"""Attributes of walked spans split into columns and the rest, compiled; the rules are those of `otlp_names`.

What a key means is decided once for each distinct key of a request (`plan_keys`). The kernel then chooses, span by span, the surest
source of every column among the attributes that fit it, and packs what is left, sorted by key as canonical JSON wants it. Spans with
something that needs more thought (a value meant for a column that it does not fit, a text beyond its limit) are marked slow.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import BOOL, DOUBLE, INT, NULL, TEXT
from crossrank.ingest.borrowed import borrowed
from crossrank.ingest.byte_kernels import Table
from crossrank.ingest.known_names import FIT, INT32_MAX, INT64_MAX
from crossrank.ingest.otlp_names import ALIAS, NAMES, OWN, STRICT
from crossrank.ingest.otlp_walk import ARRAY, Attrs, Spans
from crossrank.limits import Limits

COLUMNS: Final = frozenset((*FIT, "name", "thread.id", "thread.name"))
_SURENESS: Final = {name: place for place, name in enumerate(sorted(NAMES, key=lambda name: (NAMES[name][1], name)))}
_AN_INT, _A_TEXT, _A_KIND, _A_FLAG, _A_NUMBER, _RANKS, _A_THREAD = range(7)
_FORMS: Final = {
    **dict.fromkeys(("attempt", "rank", "peer", "step", "seq", "bytes"), _AN_INT),
    "kind": _A_KIND,
    "is_async": _A_FLAG,
    "value": _A_NUMBER,
    "group_ranks": _RANKS,
    "thread.id": _A_THREAD,
}
_MOST: Final = {"attempt": INT32_MAX, "rank": INT32_MAX, "peer": INT32_MAX}
_FLOAT_EXACT: Final = 2**53
_INFINITE: Final = 0x7FF0000000000000
_DIGITS_MAX: Final = 19
_NO_NUMBER: Final = np.uint64(2**64 - 1)
_SLOW: Final = -1


class Keys(NamedTuple):
    """What each distinct key of a request means; arrays by key code."""

    column: np.ndarray  # int64, place in the columns that the request uses, -1 for none
    form: np.ndarray  # int64
    most: np.ndarray  # int64, the greatest integer that fits
    sureness: np.ndarray  # int64, the lower the surer, all different
    moves: np.ndarray  # bool, the attribute lives in the column only
    strict: np.ndarray  # bool, a value that does not fit is worth a warning or a refusal
    long: np.ndarray  # bool, beyond the limit
    order: np.ndarray  # int64, place among the sorted keys


class Placed(NamedTuple):
    """Values of the used columns: `number` is an integer, the bits of a double or a value code, as `given` (a kind) says."""

    given: np.ndarray  # int8 [columns, n], 0 where absent
    number: np.ndarray  # int64 [columns, n]


def plan_keys(keys: list[str], limits: Limits) -> tuple[Keys, list[str]]:
    """The meaning of the keys, and the columns that they use."""
    n = len(keys)
    numbers, truths = np.zeros((5, n), np.int64), np.zeros((3, n), np.bool_)
    plan = Keys._make([*numbers[:4], *truths, numbers[4]])
    plan.column[:] = -1
    columns: list[str] = []
    for code, key in enumerate(keys):
        plan.long[code] = len(key) * 4 > limits.key_bytes and len(key.encode()) > limits.key_bytes
        column, sureness = NAMES.get(key, (key, ALIAS))
        if column not in COLUMNS:
            continue
        if column not in columns:
            columns.append(column)
        plan.column[code] = columns.index(column)
        plan.form[code] = _A_TEXT if sureness == OWN and column == "kind" else _FORMS.get(column, _A_TEXT)
        plan.most[code] = _MOST.get(column, INT64_MAX)
        plan.sureness[code] = _SURENESS.get(key, 0)
        plan.moves[code] = sureness != ALIAS
        plan.strict[code] = key in STRICT
    plan.order[np.array(sorted(range(n), key=keys.__getitem__), np.int64)] = np.arange(n)
    return plan, columns


def place(
    buf: np.ndarray, spans: Spans, attrs: Attrs, values: Table, plan: Keys, columns: int, fits: np.ndarray, value_bytes: int
) -> Placed:
    """Fills the columns and packs the rest to the front of `attrs`, ranges in `spans.first`; marks `values` that the rest uses.

    fits: bool by value code, whether a text is a kind or an array is a list of ranks.
    """
    n = spans.slow.size
    apart = (n // 512 + 1) * 512 + 24  # columns a multiple of 4 KiB apart would push each other out of the processor's cache
    placed = Placed(np.zeros((columns, apart), np.int8), np.zeros((columns, apart), np.int64))
    best = Best(*(np.zeros(columns, np.int64) for _ in range(4)))
    _place(buf, spans, attrs, values, plan, fits, value_bytes, placed, best)
    return Placed(placed.given[:, :n], placed.number[:, :n])


class Best(NamedTuple):
    """For each column, the surest attribute of the span at hand that fits it."""

    attr: np.ndarray  # int64, -1 for none
    sureness: np.ndarray  # int64
    given: np.ndarray  # int64
    number: np.ndarray  # int64


@njit(cache=True, nogil=True)
def _place(
    buf: np.ndarray,
    spans: Spans,
    attrs: Attrs,
    values: Table,
    plan: Keys,
    fits: np.ndarray,
    value_bytes: int,
    placed: Placed,
    best: Best,
) -> None:
    buf, spans, attrs, values = borrowed(buf), borrowed(spans), borrowed(attrs), borrowed(values)
    plan, fits, placed, best = borrowed(plan), borrowed(fits), borrowed(placed), borrowed(best)
    packed = first = 0
    for s in range(spans.slow.size):
        last = spans.first[s + 1]
        after = _SLOW
        if not spans.slow[s] and _choose(buf, first, last, attrs, values, plan, fits, best):
            after = _pack(first, last, packed, attrs, values, plan, best, value_bytes)
        if after == _SLOW:
            spans.slow[s] = True
            after = packed
        else:
            for column in range(best.attr.size):
                if best.attr[column] >= 0:
                    placed.given[column, s], placed.number[column, s] = best.given[column], best.number[column]
        first, spans.first[s], packed = last, packed, after
    spans.first[spans.slow.size] = packed


@njit(cache=True, nogil=True, forceinline=True)
def _choose(buf: np.ndarray, first: int, last: int, attrs: Attrs, values: Table, plan: Keys, fits: np.ndarray, best: Best) -> bool:
    """Finds the best source of each column; false when the span needs more thought."""
    best.attr[:] = -1
    for a in range(first, last):
        key = attrs.key[a]
        column = plan.column[key]
        if plan.long[key]:
            return False
        if column < 0:
            continue
        given, number = _fitted(buf, plan.form[key], plan.most[key], attrs.kind[a], attrs.value[a], values, fits)
        if given == 0:
            if plan.strict[key]:
                return False
        elif best.attr[column] < 0 or plan.sureness[key] < best.sureness[column]:
            best.attr[column], best.sureness[column] = a, plan.sureness[key]
            best.given[column], best.number[column] = given, number
    return True


@njit(cache=True, nogil=True, forceinline=True)
def _pack(first: int, last: int, packed: int, attrs: Attrs, values: Table, plan: Keys, best: Best, value_bytes: int) -> Any:
    """Moves the attributes that no column took to `packed` and on, in the order of their keys; the place after them, or _SLOW."""
    after = packed
    for a in range(first, last):
        key, kind, value = attrs.key[a], attrs.kind[a], attrs.value[a]
        column = plan.column[key]
        if column >= 0 and best.attr[column] == a and plan.moves[key]:
            continue
        if kind not in (BOOL, INT, DOUBLE, NULL):
            if kind == TEXT and values.size[value] > value_bytes:
                return _SLOW
            values.mark[value] = 1
        i = after
        while i > packed and plan.order[attrs.key[i - 1]] > plan.order[key]:
            attrs.key[i], attrs.kind[i], attrs.value[i] = attrs.key[i - 1], attrs.kind[i - 1], attrs.value[i - 1]
            i -= 1
        attrs.key[i], attrs.kind[i], attrs.value[i] = key, kind, value
        after += 1
    return after


@njit(cache=True, nogil=True)
def _fitted(buf: np.ndarray, form: int, most: int, kind: int, value: int, values: Table, fits: np.ndarray) -> tuple[Any, Any]:
    """(attribute kind, number) as the column holds it; kind 0 when the value does not fit."""
    if form == _AN_INT:
        if kind == INT:
            return (INT if 0 <= value <= most else 0), value
        if kind == TEXT:
            number = _decimal(buf, values.start[value], values.size[value])
            return (INT if number <= np.uint64(most) else 0), np.int64(number)
        return 0, value
    if form == _A_FLAG:
        if kind == TEXT:
            number = _truth(buf, values.start[value], values.size[value])
            return (BOOL if number >= 0 else 0), number
        return (BOOL if kind == BOOL else 0), value
    if form == _A_NUMBER:
        if kind == INT:
            bits = np.float64(value).view(np.int64)
            return (DOUBLE if -_FLOAT_EXACT <= value <= _FLOAT_EXACT else 0), bits
        return (DOUBLE if kind == DOUBLE and value & _INFINITE != _INFINITE else 0), value
    if form == _RANKS:
        return (ARRAY if kind == ARRAY and fits[value] else 0), value
    if form == _A_THREAD and kind == INT:
        return INT, value
    fit = kind == TEXT and values.size[value] > 0 and (form != _A_KIND or fits[value])
    return (TEXT if fit else 0), value


@njit(cache=True, nogil=True, forceinline=True)
def _decimal(buf: np.ndarray, at: int, size: int) -> Any:
    """A decimal text of 1 to 19 digits as an integer; the greatest uint64, which fits no column, for any other text."""
    if not 1 <= size <= _DIGITS_MAX:
        return _NO_NUMBER
    number = np.uint64(0)
    for i in range(at, at + size):
        if not 48 <= buf[i] <= 57:
            return _NO_NUMBER
        number = number * np.uint64(10) + np.uint64(buf[i] - 48)
    return number


@njit(cache=True, nogil=True)
def _truth(buf: np.ndarray, at: int, size: int) -> Any:
    """1 for "true", 0 for "false", -1 for any other text."""
    if size == 4 and buf[at] == 116 and buf[at + 1] == 114 and buf[at + 2] == 117 and buf[at + 3] == 101:
        return 1
    false = size == 5 and buf[at] == 102 and buf[at + 1] == 97 and buf[at + 2] == 108 and buf[at + 3] == 115 and buf[at + 4] == 101
    return 0 if false else -1
