"""Doubts about one event, as bits of its `flags` column. An event with a flag is kept and shown, never silently repaired."""

from __future__ import annotations

from enum import IntFlag


class EventFlag(IntFlag):
    """Each bit is one doubt; 0 means none. Bits are stored, so they are never renumbered."""

    END_BEFORE_START = 1  # the span ends before it starts: kept raw, left out of every aggregate
    INVALID_PARENT = 2  # the parent id had the wrong length and was dropped
    TRUNCATED = 4  # a name, key or value was longer than its limit and was cut
    START_MISSING = 8  # the end half of a start/end pair whose start has not come yet
    CONFLICT = 16  # the same identity came before with other content: the last one received counts
    AMENDS = 32  # replaces or completes an event that was stored before (open -> closed, pair joined, conflict)
    CLIPPED = 128  # an importer shortened a duration that cannot be; the recorded one is in attrs
    JOINED = 64  # start and end came apart and were joined by the store; kept in segments, not shown in answers
