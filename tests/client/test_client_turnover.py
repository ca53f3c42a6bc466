"""A ring that somebody else writes is read rarely, yet nothing of it goes unseen; what was overwritten is counted."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from crossrank_client.turnover import AHEAD_NS, LEAST_NS, MOST_NS, Turnover

SECOND = 1_000_000_000
SIZE = 2000


class Writer:
    """Numbers its entries by one and keeps the last of them."""

    def __init__(self, size: int = SIZE) -> None:
        self.size, self.written = size, 0

    def ring(self) -> list[dict[str, Any]]:
        return [{"record_id": n} for n in range(max(0, self.written - self.size), self.written)]


def numbers(entries: list[dict[str, Any]]) -> list[int]:
    return [entry["record_id"] for entry in entries]


def read(turnover: Turnover, writer: Writer, now_ns: int) -> list[int]:
    return numbers(turnover.unread(writer.ring(), now_ns, writer.written))


def run(rates: list[int], *, counts: bool = True, check_ns: int = SECOND) -> tuple[Turnover, list[int], list[int], int]:
    """Rates by check. What the reader knows, what it saw, when it looked, how much was written."""
    writer, turnover, seen, looks = Writer(), Turnover(), [], []
    for check, rate in enumerate(rates):
        now = check * check_ns
        writer.written += rate * check_ns // SECOND
        counted = writer.written if counts else 0
        if turnover.is_due(now, counted):
            looks.append(now)
            seen += numbers(turnover.unread(writer.ring(), now, counted))
    seen += read(turnover, writer, len(rates) * check_ns)
    return turnover, seen, looks, writer.written


@pytest.mark.parametrize("counts", [True, False], ids=["counted", "by-rate"])
@pytest.mark.parametrize(("rate", "least_s"), [(20, 10), (100, 10), (245, 7), (400, 3), (1000, 1), (1300, 1)])
def test_a_steady_ring_is_read_when_most_of_it_is_new_and_nothing_goes_unseen(rate: int, least_s: int, counts: bool):
    turnover, seen, looks, written = run([rate] * 300, counts=counts)
    assert seen == list(range(written))
    assert turnover.lost == 0
    settled = [b - a for a, b in itertools.pairwise(looks) if a > 120 * SECOND]  # the ring is full by then
    assert least_s * SECOND <= min(settled) <= max(settled) <= MOST_NS


def test_a_rate_that_varies_by_chance_loses_nothing():
    seed = 20
    print(f"seed {seed}")
    draw = random.Random(seed)
    rates = [draw.choice((0, 0, 10, 100, 200, 333)) for _ in range(2000)]  # never more than a quarter of the ring in 1.5 s
    turnover, seen, looks, written = run(rates, check_ns=3 * SECOND // 2)
    assert seen == list(range(written))
    assert turnover.lost == 0
    assert len(looks) < 0.4 * len(rates)


def test_a_burst_is_met_by_the_count_at_the_next_check():
    writer, turnover = Writer(), Turnover()
    writer.written = SIZE
    for _ in range(2):
        read(turnover, writer, 0)
    assert not turnover.is_due(3 * SECOND, writer.written)
    assert not turnover.is_due(9 * SECOND, writer.written + 10)
    assert turnover.is_due(10 * SECOND - 1, writer.written + 3 * SIZE // 4)
    assert not turnover.is_due(LEAST_NS - 1, writer.written + SIZE)


def test_it_is_due_while_there_is_time_to_ask_again():
    writer, turnover = Writer(), Turnover()
    writer.written = SIZE
    for _ in range(2):
        read(turnover, writer, 0)
    assert not turnover.is_due(SECOND, writer.written + 600)  # 1,800 by the time AHEAD_NS have gone by
    assert turnover.is_due(2 * SECOND, writer.written + 800)
    assert 800 + 600 * AHEAD_NS // SECOND == SIZE


def test_the_pace_of_a_burst_is_remembered_through_the_pause_after_it():
    writer, turnover = Writer(), Turnover()
    rates = [0, 0, 0, 500] * 100  # 125 in the mean, yet the fourth second brings a quarter of the ring
    turned_most = 0
    for check, rate in enumerate(rates):
        writer.written += rate
        now = check * SECOND
        if turnover.is_due(now, writer.written):
            turned_most = max(turned_most, len(read(turnover, writer, now)))
    assert turned_most == SIZE // 2  # so that two more such seconds would have been held
    assert turnover.lost == 0


def test_what_was_overwritten_unseen_is_counted_and_the_rest_is_read():
    writer, turnover = Writer(), Turnover()
    writer.written = 10
    assert read(turnover, writer, 0) == list(range(10))
    writer.written = 10 + SIZE + 37
    assert read(turnover, writer, SECOND) == list(range(47, 47 + SIZE))
    assert turnover.lost == 37
    assert read(turnover, writer, 2 * SECOND) == []
    assert turnover.lost == 37


def test_an_entry_that_is_put_off_comes_again_until_it_is_gone():
    writer, turnover = Writer(size=4), Turnover()
    writer.written = 3
    first = turnover.unread(writer.ring(), 0, 3)
    turnover.put_off(first[1])
    writer.written = 5
    again = turnover.unread(writer.ring(), SECOND, 5)
    assert numbers(again) == [1, 3, 4]
    turnover.put_off(again[0])
    turnover.put_off(again[2])
    assert numbers(turnover.unread(writer.ring(), 2 * SECOND, 5)) == [1, 4]
    turnover.put_off(again[0])
    turnover.put_off(again[2])
    writer.written = 7
    assert read(turnover, writer, 3 * SECOND) == [4, 5, 6]
    assert turnover.lost == 1  # the second entry


def test_a_ring_that_is_numbered_anew_is_read_from_its_beginning():
    writer, turnover = Writer(), Turnover()
    writer.written = 500
    waiting = turnover.unread(writer.ring(), 0, 500)[-1]
    turnover.put_off(waiting)
    writer.written = 3
    assert read(turnover, writer, SECOND) == [0, 1, 2]
    assert turnover.lost == 1
    assert read(turnover, writer, 2 * SECOND) == []


def test_what_went_before_a_late_reader_came_is_not_lost():
    writer, turnover = Writer(), Turnover(late=True)
    writer.written = SIZE + 10
    assert len(read(turnover, writer, 0)) == SIZE
    assert turnover.lost == 0
    writer.written += SIZE + 1
    read(turnover, writer, SECOND)
    assert turnover.lost == 1


def test_an_empty_ring_is_looked_at_and_holds_nothing():
    turnover = Turnover()
    assert turnover.is_due(0, 0)
    assert turnover.unread((), 0, 0) == []
    assert not turnover.is_due(LEAST_NS // 2, 0)
    assert turnover.is_due(LEAST_NS, 0)
