"""When an open operation is a hang: against the job's own rhythm, at the moment of the question."""

from __future__ import annotations

import numpy as np

from crossrank.analysis.hangs import Receipts, hang_at, hang_finding, receipts_of, silence_at
from crossrank.analysis.standstill import find_standstill
from crossrank.analysis.steps import find_steps
from crossrank.model.progress import Progress
from crossrank.model.timeline import Timeline
from crossrank.model.verdicts import Hang
from tests.support.events import collective
from tests.support.pipeline import topology_of
from tests.support.timelines import timeline_of

MS, SECOND, HOUR = 1_000_000, 1_000_000_000, 3_600_000_000_000
START = 1_780_000_000 * SECOND
STEP_NS = 2 * SECOND


def a_job() -> Timeline:
    """Three steps of two seconds; in the last one rank 1 does not enter the collective."""
    rows = []
    for s in range(4):
        at = START + s * STEP_NS
        for r in range(2):
            last = s == 3
            rows.append({"rank": r, "kind": "step", "step": s, "at": (at, None if last else at + STEP_NS)})
            if not last or r == 0:
                rows.append(collective(r, s + 1, (at + SECOND, None if last else at + SECOND + 9 * MS), step=s, group_ranks=[0, 1]))
    return timeline_of(*rows)


def ask(wall_ns: int, receipts: Receipts | None, *, dumped: bool = False, listening_since_ns: int = 0) -> Hang:
    timeline = a_job()
    topology = topology_of(timeline)
    standstill = find_standstill(timeline, topology, Progress((), np.empty(0, dtype=np.int64), ()), ())
    steps = find_steps(timeline, topology)
    silence = silence_at(timeline, steps, receipts, wall_ns, listening_since_ns=listening_since_ns, dumped=dumped)
    hang = hang_at(timeline, standstill, silence)
    assert hang.hung == bool(hang_finding(timeline, hang))
    return hang


LAST = START + 3 * STEP_NS + SECOND
LIVE = Receipts(START, LAST, SECOND)


def test_three_usual_steps_are_the_threshold():
    assert ask(LAST, LIVE).silence.threshold_ns == 3 * STEP_NS
    assert not ask(LAST + 3 * STEP_NS, LIVE).hung
    late = ask(LAST + 3 * STEP_NS + 1, LIVE)
    assert late.hung
    assert [c.rank for c in late.culprits] == [1]
    assert late.since_ns == LAST


def test_the_wall_clock_of_the_service_may_be_anything():
    """Only how long nothing has come counts, not the difference between the clocks."""
    shifted = Receipts(START - 40 * SECOND, LAST - 40 * SECOND, SECOND)
    assert not ask(LAST - 40 * SECOND + 3 * STEP_NS, shifted).hung
    assert ask(LAST - 40 * SECOND + 3 * STEP_NS + 1, shifted).hung


def test_rare_deliveries_stretch_the_threshold():
    rare = Receipts(START, LAST, 10 * SECOND)
    assert not ask(LAST + 20 * SECOND, rare).hung
    assert ask(LAST + 20 * SECOND + 1, rare).hung


def test_a_recording_of_long_ago_is_judged_by_its_own_age():
    now = LAST + 20 * HOUR
    assert ask(now, Receipts(now - MS, now, 0)).hung


def test_a_job_whose_clocks_are_hours_behind_is_no_recording():
    now = LAST + 20 * HOUR
    live = Receipts(now - 3 * STEP_NS, now, SECOND)
    assert not ask(now + SECOND, live).hung


def test_dumps_are_judged_by_their_own_age():
    assert ask(LAST + 180 * SECOND, Receipts(LAST + 180 * SECOND, LAST + 180 * SECOND, 0), dumped=True).hung
    assert not ask(LAST + SECOND, Receipts(LAST, LAST, 0), dumped=True).hung


def test_silence_while_nobody_could_reach_the_service_says_nothing():
    started = LAST + 600 * SECOND
    assert not ask(started + SECOND, LIVE, listening_since_ns=started).hung
    assert ask(started + 3 * STEP_NS + 1, LIVE, listening_since_ns=started).hung


def test_receipts():
    assert receipts_of(np.empty(0, dtype=np.int64), np.empty(0, dtype=bool)) is None
    assert receipts_of(np.array([30, 10, 10, 20]), np.ones(4, dtype=bool)) == Receipts(10, 30, 10)
    assert receipts_of(np.array([30, 10]), np.zeros(2, dtype=bool)) == Receipts(10, 30, 0)


def test_what_is_said_of_a_hang_does_not_make_its_silence_usual():
    """Stacks and open operations come after four seconds, dumps of finished ones after eight more; one second was the rhythm."""
    work = np.arange(8) * SECOND
    received = np.concatenate([work, [11 * SECOND, 19 * SECOND, 19 * SECOND]])
    finished = np.concatenate([np.ones(8, dtype=bool), [False, False, True]])
    assert receipts_of(received, finished) == Receipts(0, 19 * SECOND, SECOND)
