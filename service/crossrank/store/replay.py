"""At start: reads the log back, so that everything acknowledged is there once, whatever state the files are in.

Never refuses to start because of damage. A torn tail of the newest file is a write that was never acknowledged: cut off and
counted. Any other unreadable stretch may have held acknowledged events: the file is set aside for a person, all records before
and behind it are used, and `wal_damaged_records` counts it.
"""

from __future__ import annotations

from collections.abc import Callable

from crossrank.counters import Counters
from crossrank.model.post import Post
from crossrank.store.wal import Wal
from crossrank.store.wal_format import Damaged


def replay(
    wal: Wal,
    counters: Counters,
    *,
    floor: int,
    enter: Callable[[Post], None],
    after_file: Callable[[int], None],
) -> None:
    """Enters every record of the files from `floor` on, in order; older files are in segments already and are deleted.

    enter: takes one post; an exception counts it as undecodable. after_file: called with each file's number once it is read.
    """
    wal.drop_below(floor)
    numbers = wal.numbers()
    for number in numbers:
        _replay_file(wal, counters, number, enter, is_newest=number == numbers[-1])
        after_file(number)


def _replay_file(wal: Wal, counters: Counters, number: int, enter: Callable[[Post], None], *, is_newest: bool) -> None:
    torn_at: int | None = None
    for found in wal.replay(number):
        if isinstance(found, Damaged):
            if found.at_end and is_newest:
                torn_at = found.start
                continue
            counters.add("wal_damaged_records")
            wal.set_aside(number)
            continue
        try:
            enter(found.post)
        except Exception:  # noqa: BLE001  - one body that cannot be decoded again must not keep the others away
            counters.add("wal_undecodable_posts")
            wal.set_aside(number)
    if torn_at is not None:
        counters.add("wal_torn_tails")
        wal.cut(number, torn_at)
