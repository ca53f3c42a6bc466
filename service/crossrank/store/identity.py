"""Recognises resends: which of the events of a batch are new, and how the others relate to what came before.

Per job an open-addressing hash table from identity key to the marks (see `content`) that were seen under it; 12 bytes a slot.
For each row, in log order:

    the same mark was seen                              -> DUPLICATE (dropped)
    CLOSED   after a CLOSED                             -> CONFLICT
             after halves only                          -> AMENDS
    OPEN/END after a CLOSED                             -> DUPLICATE: the closed form says more, whichever came first
             after a different one of its own form      -> CONFLICT
             after the other half                       -> AMENDS (completes it)
    otherwise                                           -> NEW

The table holds what is not in segments yet: a generation since the last seal began, and the one before, which that seal writes. So it is
as small as the memtables. What is in segments is looked up there (see `remembered`) and given to `classify` with each batch.
"""

from __future__ import annotations

from typing import Any, Final

import numba
import numpy as np

from crossrank.model.arrays import Int8Array, Int32Array, Int64Array
from crossrank.store.content import CLOSED, END, FORM_BITS, OPEN

NEW: Final = 0
DUPLICATE: Final = 1
AMENDING: Final = 2
CONFLICTING: Final = 3

_VERSIONS_MAX: Final = 16  # marks remembered per identity; further ones count as conflicts but are not remembered
_FILL: Final = 0.6  # rehash when fuller: probe sequences stay short
_FIRST_SLOTS: Final = 1 << 10
_HALVES: Final = (1 << OPEN) | (1 << END)
Versions = tuple[Int64Array, Int32Array]  # keys and marks, row by row
NO_VERSIONS: Final[Versions] = (np.zeros(0, np.int64), np.zeros(0, np.int32))


@numba.njit(cache=True, nogil=True)
def _look_up(keys: Any, seen: Any, key: Any, mark: Any) -> Any:
    """(found this very mark, bit set of forms seen under the key, number of marks under the key, slot to insert at)."""
    last = len(keys) - 1
    slot = key & last
    forms, versions = 0, 0
    while seen[slot] != 0:
        if keys[slot] == key:
            if seen[slot] == mark:
                return True, forms, versions, slot
            forms |= 1 << (seen[slot] & FORM_BITS)
            versions += 1
        slot = (slot + 1) & last
    return False, forms, versions, slot


@numba.njit(cache=True, nogil=True)
def _relation(form: Any, forms: Any) -> Any:
    """How an event of this form, not seen before, relates to the forms seen under its identity."""
    closed_seen = (forms >> CLOSED) & 1
    if form == CLOSED:
        return CONFLICTING if closed_seen else (AMENDING if forms & _HALVES else NEW)
    if closed_seen:
        return DUPLICATE
    if (forms >> form) & 1:
        return CONFLICTING
    return AMENDING if forms else NEW


@numba.njit(cache=True, nogil=True)
def _classify(
    keys: Any, seen: Any, old_keys: Any, old_seen: Any, far_keys: Any, far_seen: Any, key: Any, mark: Any, out: Any
) -> Any:
    """Classifies rows in order and remembers them; returns how many marks were added. old, far: further tables to look into."""
    added = 0
    for i in range(len(key)):
        found, forms, versions, slot = _look_up(keys, seen, key[i], mark[i])
        if not found:
            found, old_forms, old_versions, _ = _look_up(old_keys, old_seen, key[i], mark[i])
            forms |= old_forms
            versions += old_versions
        if not found and len(far_keys) > 1:
            found, far_forms, far_versions, _ = _look_up(far_keys, far_seen, key[i], mark[i])
            forms |= far_forms
            versions += far_versions
        out[i] = DUPLICATE if found else _relation(mark[i] & FORM_BITS, forms)
        if out[i] != DUPLICATE and versions < _VERSIONS_MAX:
            keys[slot], seen[slot] = key[i], mark[i]
            added += 1
    return added


@numba.njit(cache=True, nogil=True)
def _unseen(keys: Any, seen: Any, old_keys: Any, old_seen: Any, key: Any, mark: Any, out: Any) -> None:
    for i in range(len(key)):
        out[i] = not _look_up(keys, seen, key[i], mark[i])[0] and not _look_up(old_keys, old_seen, key[i], mark[i])[0]


@numba.njit(cache=True, nogil=True)
def _remember(keys: Any, seen: Any, key: Any, mark: Any) -> Any:
    """Inserts marks without judging them; returns how many were added."""
    added = 0
    for i in range(len(key)):
        if mark[i] == 0:
            continue
        found, _, versions, slot = _look_up(keys, seen, key[i], mark[i])
        if not found and versions < _VERSIONS_MAX:
            keys[slot], seen[slot] = key[i], mark[i]
            added += 1
    return added


class IdentityTable:
    """The marks received of one job's identities since the seal before the last one began."""

    def __init__(self) -> None:
        self._keys, self._seen = _slots(_FIRST_SLOTS)
        self._old_keys, self._old_seen = _slots(1)
        self._count = 0
        self._old_count = 0

    def __len__(self) -> int:
        return self._count + self._old_count

    def unseen(self, keys: Int64Array, marks: Int32Array) -> Int64Array:
        """The rows that are not exact copies of what is in the table: those to be looked up in segments."""
        out = np.empty(len(keys), np.bool_)
        _unseen(self._keys, self._seen, self._old_keys, self._old_seen, keys, marks, out)
        return np.flatnonzero(out)

    def classify(self, keys: Int64Array, marks: Int32Array, stored: Versions = NO_VERSIONS) -> Int8Array:
        """[n] NEW, DUPLICATE, AMENDING or CONFLICTING for rows in log order; they are remembered for the next call.

        stored: (keys, marks) of versions of these identities that are in segments; a mark 0 says nothing.
        """
        self._make_room(len(keys))
        far_keys, far_seen = _slots(1)
        if len(stored[0]):
            far_keys, far_seen = _slots(1 << (2 * len(stored[0])).bit_length())
            _remember(far_keys, far_seen, *stored)
        out = np.empty(len(keys), np.int8)
        self._count += _classify(self._keys, self._seen, self._old_keys, self._old_seen, far_keys, far_seen, keys, marks, out)
        return out

    def rotate(self) -> None:
        """A seal begins: the generation that the seal before it has written is forgotten."""
        self._old_keys, self._old_seen, self._old_count = self._keys, self._seen, self._count
        self._keys, self._seen = _slots(_FIRST_SLOTS)
        self._count = 0

    def _make_room(self, rows: int) -> None:
        slots = len(self._keys)
        while self._count + rows > _FILL * slots:
            slots *= 2
        if slots > len(self._keys):
            keys, seen = _slots(slots)
            _remember(keys, seen, self._keys, self._seen)
            self._keys, self._seen = keys, seen


def _slots(count: int) -> Versions:
    return np.zeros(count, np.int64), np.zeros(count, np.int32)
