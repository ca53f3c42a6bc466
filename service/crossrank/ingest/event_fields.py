"""The fields of an event as the line walk needs them: names, the forms of their values, and what usually stands between values."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numba import njit

from crossrank.ingest.attr_texts import BOOL, DOUBLE, INT, NULL, TEXT
from crossrank.ingest.byte_kernels import Table
from crossrank.ingest.event_form import COLUMNS, SEED_FIELDS
from crossrank.model.columns import EVENT_SCHEMA

NESTED, ESCAPED = 5, 6  # kinds beside those of `attr_texts`
FIELDS: Final = (*COLUMNS, *SEED_FIELDS)
INTS, WORDS, FLAG, NUMBER, ID, LIST, ATTRS, NO = range(8)  # forms of columns


def _form(name: str) -> int:
    if name in ("otel", *SEED_FIELDS):
        return NO
    kind = str(EVENT_SCHEMA.field(name).type)
    by_type = {"int32": INTS, "int64": INTS, "bool": FLAG, "double": NUMBER, "string": ATTRS}
    return ID if kind.startswith("fixed") else LIST if kind.startswith("list") else by_type.get(kind, WORDS)


_FORMS: Final = np.array([_form(name) for name in FIELDS], np.int64)
_NAME_SIZES: Final = np.array([len(name) for name in FIELDS], np.int64)
_NAME_STARTS: Final = np.cumsum(_NAME_SIZES) - _NAME_SIZES
_NAMES: Final = np.frombuffer("".join(FIELDS).encode(), np.uint8).copy()


class Fields(NamedTuple):
    """The fields of an event: their names, forms and, by key code, which one a key is (-1 for none)."""

    names: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    forms: np.ndarray
    of_key: np.ndarray
    # What stood between two values the last time, by 4 (key code before + 1) + 2 inside attrs + 1 after a comma:
    next_key: np.ndarray  # int64, the key that came next, -1 for none
    gap_start: np.ndarray  # int64, where the text between the values began
    gap_size: np.ndarray  # int64


def gaps(keys: Table) -> list[np.ndarray]:
    """Room for what stands between values, nothing known yet."""
    states = 4 * (keys.start.size + 1)
    return [np.full(states, -1, np.int64), np.empty(states, np.int64), np.empty(states, np.int64)]


@njit(cache=True, nogil=True, forceinline=True)
def fits(form: int, kind: int) -> Any:
    """Whether a value of this kind can stand in a column of this form."""
    if kind == TEXT or kind == ESCAPED:  # noqa: PLR1714, SIM109  # compiled
        return form == WORDS
    if kind == INT:
        return form == INTS or form == NUMBER  # noqa: PLR1714
    return (
        kind == NULL or (form == FLAG and kind == BOOL) or (form == NUMBER and kind == DOUBLE) or (form == LIST and kind == NESTED)
    )


def new_fields(keys: Table) -> Fields:
    """The fields for a table of keys that is empty."""
    return Fields._make([_NAMES, _NAME_STARTS, _NAME_SIZES, _FORMS, np.empty(keys.start.size, np.int64), *gaps(keys)])


def fields_for(keys: Table, fields: Fields) -> Fields:
    """The fields for the same keys in a larger table."""
    return Fields._make([*fields[:4], np.resize(fields.of_key, keys.start.size), *gaps(keys)])
