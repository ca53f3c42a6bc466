from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from crossrank.align.fit import fit_clocks
from crossrank.model.trace import JobTrace, trace_from_arrow
from crossrank.reconstruct.match import match
from crossrank.reconstruct.order import replay
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.job import simulate

JOB = simulate(JobConfig(dp=2, tp=4, pp=2, steps=25, ranks_per_host=4, clocks=ClockConfig(step_fraction=0.25)), seed=301)
HOUR_NS = 3_600_000_000_000


def trace_from(events: pa.Table) -> JobTrace:
    return trace_from_arrow(events, job="j", attempt=0)


def aligned_ends(trace: JobTrace):
    clocks = fit_clocks(trace, match(trace))
    return clocks, clocks.to_reference(trace.domain, trace.end_ns)


def by_span(trace: JobTrace, values):
    return values[np.lexsort((trace.span_id, trace.rank))]


def replaced(name: str, values) -> pa.Table:
    events = JOB.events
    field = events.schema.field(name)
    column = pa.array(values)
    column = column.dictionary_encode().cast(field.type) if pa.types.is_dictionary(field.type) else column.cast(field.type)
    return events.set_column(events.schema.get_field_index(name), field, column)


@pytest.mark.parametrize("shift", [1, -999_999_937, HOUR_NS, -HOUR_NS])
def test_moving_one_hosts_clock_changes_nothing_relative(shift):
    plain = trace_from(JOB.events)
    _, wanted = aligned_ends(plain)
    moved_domain = 2
    mine = plain.domain == moved_domain
    moved = replace(
        plain,
        start_ns=np.where(mine, plain.start_ns + shift, plain.start_ns),
        end_ns=np.where(mine, plain.end_ns + shift, plain.end_ns),
    )
    clocks, found = aligned_ends(moved)
    assert clocks.reference.tolist() == [0]
    assert np.abs(found - wanted).max() <= 2


def test_renaming_hosts_changes_nothing_relative():
    plain = trace_from(JOB.events)
    clocks, wanted = aligned_ends(plain)
    hosts = sorted(set(JOB.events["clock"].to_pylist()))
    renamed = dict(zip(hosts, reversed(hosts), strict=True))
    trace = trace_from(replaced("clock", [renamed[h] for h in JOB.events["clock"].to_pylist()]))
    again, found = aligned_ends(trace)
    # Another host may now be the reference, whose own rate becomes the timeline's: compare what is between hosts.
    difference = by_span(trace, found) - by_span(plain, wanted)
    line = np.polynomial.Polynomial.fit(by_span(plain, wanted) - wanted.min(), difference - difference[0], 3)
    rest = difference - difference[0] - line(by_span(plain, wanted) - wanted.min())
    assert np.abs(rest - np.median(rest)).max() < 200
    assert sum(map(len, again.steps)) == sum(map(len, clocks.steps)) == 1


def test_renumbering_ranks_changes_nothing():
    plain = trace_from(JOB.events)
    _, wanted = aligned_ends(plain)
    ranks = int(plain.rank.max()) + 1
    number = {old: (old * 7 + 3) % ranks for old in range(ranks)}
    events = replaced("rank", [number[r] for r in JOB.events["rank"].to_pylist()])
    peer = [None if p is None else number[p] for p in JOB.events["peer"].to_pylist()]
    members = [None if g is None else sorted(number[r] for r in g) for g in JOB.events["group_ranks"].to_pylist()]
    for name, values in (("peer", peer), ("group_ranks", members)):
        events = events.set_column(
            events.schema.get_field_index(name), events.schema.field(name), pa.array(values, events.schema.field(name).type)
        )
    trace = trace_from(events)
    _, found = aligned_ends(trace)
    back = {new: old for old, new in number.items()}
    old_rank = np.array([back[r] for r in trace.rank.tolist()])
    assert np.abs(found[np.lexsort((trace.span_id, old_rank))] - by_span(plain, wanted)).max() <= 5


def test_rows_in_any_order_and_a_second_run_give_the_same_bits():
    plain = trace_from(JOB.events)
    clocks, wanted = aligned_ends(plain)
    shuffled = trace_from(JOB.events.take(pa.array(np.random.default_rng(1).permutation(JOB.events.num_rows))))
    again, found = aligned_ends(shuffled)
    assert (found == wanted).all()
    assert (again.pairs.between_ns == clocks.pairs.between_ns).all()
    assert (again.sigma_ns == clocks.sigma_ns).all()


def test_aligned_times_in_hardly_move_and_show_no_new_step():
    plain = trace_from(JOB.events)
    clocks, end = aligned_ends(plain)
    start = clocks.to_reference(plain.domain, plain.start_ns)
    again, found = aligned_ends(replace(plain, start_ns=start, end_ns=end))
    assert np.abs(found - end).max() <= 3_000
    assert not any(again.steps)


def test_lost_events_cost_little():
    plain = trace_from(JOB.events)
    clocks, wanted = aligned_ends(plain)
    kept = np.random.default_rng(2).random(JOB.events.num_rows) >= 0.2
    trace = trace_from(JOB.events.filter(pa.array(kept)))
    again = fit_clocks(trace, match(trace))
    found = again.to_reference(plain.domain, plain.end_ns)
    away = np.abs(found - wanted)
    assert np.quantile(away, 0.99) <= 4_000
    assert [len(s) for s in again.steps] == [len(s) for s in clocks.steps]


def test_a_host_that_dies_early_does_not_disturb_the_others():
    plain = trace_from(JOB.events)
    _, wanted = aligned_ends(plain)
    dead = (plain.domain == 3) & (plain.start_ns > np.quantile(plain.start_ns[plain.domain == 3], 0.4))
    row = {
        (r, s): i for i, (r, s) in enumerate(zip(JOB.events["rank"].to_pylist(), JOB.events["span_id"].to_pylist(), strict=True))
    }
    gone = {row[int(plain.rank[i]), int(plain.span_id[i]).to_bytes(8, "big", signed=True)] for i in np.flatnonzero(dead)}
    trace = trace_from(JOB.events.filter(pa.array([i not in gone for i in range(JOB.events.num_rows)])))
    clocks = fit_clocks(trace, match(trace))
    found = clocks.to_reference(plain.domain, plain.end_ns)
    assert np.abs(found - wanted)[plain.domain != 3].max() <= 5_000
    assert clocks.pairs.between_ns.max() < 10**12


def test_two_swapped_keys_are_reported_and_not_absorbed():
    plain = trace_from(JOB.events)
    _, wanted = aligned_ends(plain)
    facts = match(plain).collectives
    hosts = np.array([len(np.unique(plain.domain[facts.member[a:b]])) for a, b in zip(facts.ptr[:-1], facts.ptr[1:], strict=True)])
    k = int(np.flatnonzero((hosts > 1) & (facts.group == np.roll(facts.group, -1)))[20])
    one, two = facts.member[facts.ptr[k]], facts.member[facts.ptr[k + 1]]
    seq = plain.seq.copy()
    seq[[one, two]] = seq[[two, one]]
    wrong = replace(plain, seq=seq)
    matches = match(wrong)
    assert len(replay(wrong, matches).broken) >= 1
    found = fit_clocks(wrong, matches).to_reference(plain.domain, plain.end_ns)
    assert np.abs(found - wanted).max() <= 1_000


@pytest.mark.parametrize("seed", range(3))
def test_duplicated_keys_and_lost_members_leave_finite_bounded_answers(seed):
    rng = np.random.default_rng(seed)
    plain = trace_from(JOB.events.filter(pa.array(rng.random(JOB.events.num_rows) < 0.7)))
    seq = plain.seq.copy()
    chosen = rng.integers(0, len(plain), 50)
    seq[chosen] = seq[rng.permutation(chosen)]
    wrong = replace(plain, seq=seq)
    clocks = fit_clocks(wrong, match(wrong))
    assert np.isfinite(clocks.sigma_ns).all()
    assert np.isfinite(clocks.bias_floor_ns).all()
    assert (clocks.bound_lo_ns <= 0).all()
    assert (clocks.bound_hi_ns >= 0).all()
