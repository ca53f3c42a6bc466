"""Looks identities up in segments themselves: the exact answer behind the "maybe" of an identity run.

Two passes over the row groups of the segments that may hold a row's identity:

    1  the groups whose starts reach over the row's own start: a resend is an exact copy, so it is found here
    2  all other groups, only for rows whose very mark was not found: other versions may have any time

What was read of a row group (keys and marks, 12 bytes a version) is kept for the next batches, a bounded number of groups: resends come
in the order of the first sending.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np

from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.store.identity import Versions
from crossrank.store.source import DamagedSegment, SegmentFile

_EARLIEST: Final = np.iinfo(np.int64).min


class StoredVersions:
    """Answers from segments, for one thread at a time."""

    def __init__(self, salt: int, groups_max: int) -> None:
        """salt: of the keys. groups_max: row groups kept in memory."""
        self._salt = salt
        self._groups_max = groups_max
        self._groups: OrderedDict[tuple[str, int], Versions] = OrderedDict()

    def find(
        self, keys: Int64Array, marks: Int32Array, start_ns: Int64Array, suspects: Sequence[tuple[SegmentFile, Int64Array]]
    ) -> tuple[Versions, bool]:
        """The versions stored of the suspected rows, and whether every segment could be read.

        keys, marks, start_ns [n]: of the batch; start_ns is anything where the start is not known. suspects: segment and the rows
        whose identity it may hold.
        """
        found = _Found(keys, marks)
        readable = True
        for is_second in (False, True):
            for segment, rows in suspects:
                open_rows = rows[~found.exact[rows]]
                if not len(open_rows):
                    continue
                try:
                    self._search(segment, open_rows, start_ns, found, is_second=is_second)
                except DamagedSegment:
                    readable = False
        return found.versions(), readable

    def _search(self, segment: SegmentFile, rows: Int64Array, start_ns: Int64Array, found: _Found, *, is_second: bool) -> None:
        for group, (first, last) in enumerate(segment.group_starts()):
            reached = (start_ns[rows] >= first) & (start_ns[rows] <= last)
            if is_second or reached.any():
                found.take(rows if is_second else rows[reached], *self._group(segment, group))

    def _group(self, segment: SegmentFile, group: int) -> Versions:
        name = (segment.info.path, group)
        known = self._groups.get(name)
        if known is None:
            keys, marks = segment.identities(group, self._salt)
            order = np.argsort(keys, kind="stable")
            known = self._groups[name] = keys[order], marks[order]
            while len(self._groups) > self._groups_max:
                self._groups.popitem(last=False)
        self._groups.move_to_end(name)
        return known


class _Found:
    """What was found of the rows of a batch."""

    def __init__(self, keys: Int64Array, marks: Int32Array) -> None:
        self._keys, self._marks = keys, marks
        self.exact: BoolArray = np.zeros(len(keys), np.bool_)
        self._parts: list[Versions] = []

    def take(self, rows: Int64Array, keys: Int64Array, marks: Int32Array) -> None:
        """Takes the versions of these rows among sorted keys."""
        first, last = np.searchsorted(keys, self._keys[rows], "left"), np.searchsorted(keys, self._keys[rows], "right")
        counts = last - first
        if not counts.any():
            return
        places = np.repeat(first - np.append(0, np.cumsum(counts)[:-1]), counts) + np.arange(counts.sum())
        owners = np.repeat(rows, counts)
        self.exact[owners[marks[places] == self._marks[owners]]] = True
        self._parts.append((keys[places], marks[places]))

    def versions(self) -> Versions:
        """All of them; some may occur twice."""
        keys, marks = zip(*self._parts, strict=True) if self._parts else ((), ())
        return np.concatenate([np.zeros(0, np.int64), *keys]), np.concatenate([np.zeros(0, np.int32), *marks])
