"""Who holds a standing job up, on small traces written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.standstill import find_standstill
from crossrank.model.progress import Progress, reported_progress
from crossrank.model.trace import trace_from_arrow
from crossrank.model.verdicts import Standstill
from tests.support.events import collective, event_table, message
from tests.support.pipeline import topology_of
from tests.support.timelines import timeline_from, timeline_of

NOTHING_DUMPED = Progress((), timeline_of({"at": (0, 1)}).trace.span_id[:0], ())


def standstill(*rows: dict[str, Any], dumped: bool = False) -> Standstill:
    table = event_table(*rows)
    timeline = timeline_from(trace_from_arrow(table, job="j", attempt=0))
    progress = reported_progress(table, timeline.trace) if dumped else NOTHING_DUMPED
    return find_standstill(timeline, topology_of(timeline), progress, find_mismatches(timeline))


def in_group(rank: int, seq: int, at: tuple[int, int | None], group: str, members: list[int], **more: Any) -> dict[str, Any]:
    return collective(rank, seq, at, group, group_ranks=members, **more)


def named(found: Standstill) -> list[tuple[int, str]]:
    return [(c.rank, c.reason) for c in found.culprits]


def test_nothing_is_open():
    found = standstill(collective(0, 1, (0, 9)), collective(1, 1, (0, 9)))
    assert (found.pending, found.culprits, found.since_ns) == ((), (), None)


def test_who_waits_is_a_victim_and_the_end_of_the_chain_is_named():
    rows = [
        in_group(0, 1, (10, None), "a", [0, 1]),  # waits for 1
        in_group(1, 1, (10, None), "b", [1, 2]),  # waits for 2
        message("recv", 2, 3, 1, (10, None)),  # waits for 3
        {"rank": 3, "name": "forward", "at": (5, None)},
    ]
    found = standstill(*rows)
    assert named(found) == [(3, "not_entered")]
    assert "it was last seen in forward" in found.culprits[0].proof


def test_messages_in_a_circle_are_a_deadlock():
    found = standstill(
        message("recv", 0, 1, 1, (5, None)), message("recv", 1, 2, 1, (5, None)), message("recv", 2, 0, 1, (5, None))
    )
    assert found.cycle == (0, 1, 2)
    assert named(found) == [(0, "deadlock"), (1, "deadlock"), (2, "deadlock")]


def test_a_circle_is_a_deadlock_whatever_a_rank_without_data_does():
    found = standstill(
        message("recv", 0, 1, 1, (5, None)), message("recv", 1, 0, 1, (5, None)), in_group(2, 1, (5, None), "a", [2, 3])
    )
    assert (found.cycle, found.unseen) == ((0, 1), (3,))
    assert named(found) == [(0, "deadlock"), (1, "deadlock")]


def test_groups_entered_in_different_order_are_a_deadlock():
    found = standstill(in_group(0, 1, (5, None), "a", [0, 1]), in_group(1, 1, (5, None), "b", [0, 1]))
    assert found.cycle == (0, 1)


def test_who_is_still_inside_what_others_left_stopped_on_its_device():
    rows = [in_group(r, 1, (0, 9), "g", [0, 1, 2]) for r in (0, 1)]
    rows += [in_group(2, 1, (0, None), "g", [0, 1, 2])]
    rows += [in_group(r, 2, (10, None), "g", [0, 1, 2]) for r in (0, 1)]
    assert named(standstill(*rows)) == [(2, "device_stopped")]


def test_an_end_that_was_not_reported_is_no_stop():
    rows = [in_group(r, 1, (0, 9), "g", [0, 1, 2]) for r in (0, 1)]
    rows += [in_group(2, 1, (0, None), "g", [0, 1, 2]), {"rank": 2, "at": (20, 30)}]
    rows += [in_group(r, 2, (10, None), "g", [0, 1, 2]) for r in (0, 1)]
    assert (2, "device_stopped") not in named(standstill(*rows))


def test_a_disagreement_the_group_got_over_is_not_blamed_for_a_later_hang():
    sizes = {(2, 3): 4}
    rows = [in_group(r, q, (9 * q, 9 * q + 5), "g", [0, 1, 2], bytes=sizes.get((r, q), 8)) for r in range(3) for q in range(1, 6)]
    rows += [in_group(r, 6, (60, None), "g", [0, 1, 2], bytes=8) for r in (1, 2)]
    assert named(standstill(*rows)) == [(0, "not_entered")]


def test_a_disagreement_in_which_the_group_hangs_is_blamed():
    rows = [in_group(r, q, (9 * q, 9 * q + 5), "g", [0, 1, 2], bytes=8) for r in range(3) for q in range(1, 6)]
    rows += [in_group(r, 6, (60, None), "g", [0, 1, 2], bytes=4 if r == 2 else 8) for r in range(3)]
    assert named(standstill(*rows)) == [(2, "desynchronised")]


def test_an_end_lost_at_the_end_of_the_job_accuses_nobody():
    rows = [in_group(r, 1, (0, 9), "g", [0, 1, 2]) for r in (0, 1)] + [in_group(2, 1, (0, None), "g", [0, 1, 2])]
    found = standstill(*rows)
    assert (found.culprits, found.since_ns) == ((), None)


def test_a_rank_without_data_is_said_and_nobody_is_named():
    found = standstill(*(in_group(r, 1, (5, None), "g", [0, 1, 2, 3]) for r in (0, 1, 2)))
    assert found.unseen == (3,)
    assert found.culprits == ()


def test_all_are_inside_and_nobody_is_named():
    found = standstill(*(in_group(r, 1, (5, None), "g", [0, 1]) for r in (0, 1)))
    assert (found.culprits, found.suspects, found.pending) == ((), (), ())
    assert len(found.inside) == 1


def test_a_broadcast_waits_for_its_root_only():
    rows = [in_group(r, 1, (5, None), "g", [0, 1, 2, 3], op="broadcast", peer=0) for r in (1, 2)]
    rows += [{"rank": r, "at": (0, 4)} for r in (0, 3)]
    found = standstill(*rows)
    assert found.pending[0].absent == (0,)
    assert named(found) == [(0, "not_entered")]


def test_two_ranks_may_stop():
    rows = [in_group(0, 1, (5, None), "g", [0, 1, 2]), {"rank": 1, "at": (0, 4)}, {"rank": 2, "at": (0, 4)}]
    assert named(standstill(*rows)) == [(1, "not_entered"), (2, "not_entered")]


def test_a_rank_in_a_later_step_left_the_operation_out():
    def step(rank: int, number: int, at: tuple[int, int | None]) -> dict[str, Any]:
        return {"rank": rank, "kind": "step", "step": number, "at": at}

    rows = [step(r, 0, (0, 50)) for r in range(3)]
    rows += [step(r, 1, (50, None)) for r in (0, 1)] + [step(2, 1, (50, 60)), step(2, 2, (60, None))]
    rows += [in_group(r, 1, (10, 20), "g", [0, 1, 2], step=0) for r in range(3)]
    rows += [in_group(r, 2, (55, None), "g", [0, 1, 2], step=1) for r in (0, 1)]
    rows += [in_group(2, 1, (61, None), "h", [1, 2], step=2)]
    found = standstill(*rows)
    assert named(found) == [(2, "desynchronised")]
    assert [(m.class_, m.odd_ranks, m.group, m.seq) for m in found.skipped] == [("skipped", (2,), "g", 2)]


def lossy(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds a group in which rank 0 misses one number of many: something is lost."""
    return rows + [in_group(r, q, (q, q), "lossy", [0, 1]) for r in (0, 1) for q in range(-200, 0) if (r, q) != (0, -7)]


def test_where_events_are_lost_two_that_are_missing_are_suspects():
    rows = [in_group(0, 1, (5, None), "g", [0, 1, 2]), {"rank": 1, "at": (0, 4)}, {"rank": 2, "at": (0, 4)}]
    found = standstill(*lossy(rows))
    assert found.culprits == ()
    assert found.suspects == (1, 2)


def counters(rank: int, group: str, members: list[int], enqueued: int, completed: int) -> dict[str, Any]:
    attrs = f'{{"last_enqueued_collective":{enqueued},"last_completed_collective":{completed}}}'
    return {
        "rank": rank, "kind": "mark", "name": "pg_status", "lane": "flight_recorder", "group": group, "group_ranks": members,
        "attrs": attrs, "at": (100, 100),
    }  # fmt: skip


def test_a_dump_with_nothing_outstanding_tells_that_the_host_stopped():
    members = [0, 1, 2]
    rows = [in_group(r, 8, (5, None), "g", members, lane="flight_recorder") for r in (0, 1)]
    rows += [counters(r, "g", members, 8, 7) for r in (0, 1)] + [counters(2, "g", members, 7, 7)]
    found = standstill(*rows, dumped=True)
    assert named(found) == [(2, "host_stopped")]
    assert "enqueued up to 7, completed up to 7" in found.culprits[0].proof


def test_a_dump_behind_in_what_completed_tells_that_the_device_stopped():
    members = [0, 1, 2]
    rows = [in_group(r, 8, (5, None), "g", members, lane="flight_recorder") for r in (0, 1)]
    rows += [in_group(2, 7, (4, None), "g", members, lane="flight_recorder")]
    rows += [counters(r, "g", members, 8, 7) for r in (0, 1)] + [counters(2, "g", members, 7, 6)]
    assert named(standstill(*rows, dumped=True)) == [(2, "device_stopped")]


@pytest.mark.parametrize("attrs", [None, "[1]", "{", '{"last_enqueued_collective":"x","last_completed_collective":-1}'])
def test_counters_that_are_none_say_nothing(attrs: str | None):
    rows = [in_group(0, 8, (5, None), "g", [0, 1], lane="flight_recorder"), {**counters(1, "g", [0, 1], 0, 0), "attrs": attrs}]
    assert named(standstill(*rows, dumped=True)) == [(1, "host_stopped")]
