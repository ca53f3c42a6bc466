"""What costs the job time, and what keeps us from knowing: findings of every class, each in one sentence with numbers.

Order: what stops the job (mismatch); then causes that could be fixed (straggler, straggler_host, data_stall, jitter, slow_link), the
costliest first; then what the job's own structure costs (checkpoints, the pipeline's bubble, communication that nothing hides); then what limits the answers (missing ranks, clocks). Costs of different
findings are each against the job as it was: fixing two of them may save less than their sum, when one hides the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from crossrank.analysis.checkpoint_stall import checkpoint_stall
from crossrank.analysis.doubts import clock_doubt
from crossrank.analysis.excess import usual_step_ns
from crossrank.analysis.exposed import exposed_communication
from crossrank.analysis.imbalance import imbalance
from crossrank.analysis.links import SlowLink, find_slow_links
from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.pipeline_bubble import pipeline_bubble
from crossrank.analysis.replay import ReplayGraph, build_replay, end_of_steps_ns, start_of_steps_ns
from crossrank.analysis.steps import StepTable
from crossrank.analysis.straggler_host import StragglerHost, explained, find_straggler_hosts
from crossrank.analysis.wording import capital, duration, in_steps, numbers, rank_list, rank_name, share
from crossrank.model.findings import Finding, FindingClass, Straggler
from crossrank.model.timeline import Timeline
from crossrank.model.topology import Topology
from crossrank.model.verdicts import Mismatch

_MISMATCHES_TOLD = 3
_EXPOSED_SHARE = 0.1  # exposed communication below this share of the time is not a finding
_CLOCK_SHARE = 0.05  # clock bounds above this share of a usual step are


def find_bottlenecks(
    timeline: Timeline, topology: Topology, steps: StepTable, stragglers: Sequence[Straggler],
    *, first: int | None = None, last: int | None = None, graph: ReplayGraph | None = None,
    mismatches: Sequence[Mismatch] | None = None,
) -> tuple[Finding, ...]:  # fmt: skip
    """All findings over the steps from `first` to `last` (inclusive; None: no limit). `stragglers`: of the same steps.

    graph, mismatches: of this timeline, when they have been made already. Whether the job hangs is a question of the moment, so
    that finding is made when the answer is (analysis.hangs).
    """
    if len(timeline.trace) == 0:
        return ()
    usual_ns = usual_step_ns(timeline, steps.step)
    stops = _mismatches(find_mismatches(timeline) if mismatches is None else mismatches)
    causes: list[Finding] = []
    structure: list[Finding] = []
    if len(steps) >= 2:
        graph = graph or build_replay(timeline)
        span_ns = end_of_steps_ns(graph, graph.recorded_ns, last) - start_of_steps_ns(graph, graph.recorded_ns, first)
        hosts = find_straggler_hosts(graph, topology, steps.step, first, last)
        stragglers = [s for s in stragglers if not explained(s, hosts)]
        causes += [_host(h, span_ns) for h in hosts]
        links = find_slow_links(graph, graph.timeline, topology, steps.step, first, last)
        causes += [_link(link, topology, span_ns) for link in links]
        structure += _structure(graph, topology, first, last, span_ns)
        exposed = exposed_communication(graph, steps.step, first, last)
        if span_ns > 0 and exposed.cost_ns > _EXPOSED_SHARE * span_ns:
            structure.append(_exposed(exposed.cost_ns, exposed.steps, span_ns))
    causes += [straggler_finding(s) for s in stragglers]
    causes.sort(key=lambda f: (-f.cost_ns, f.ranks))
    return tuple(stops + causes + structure + _missing(topology) + _clock(timeline, usual_ns))


def straggler_finding(s: Straggler) -> Finding:
    """A straggler as a finding: slow loaders are data stalls, rare long stops are jitter."""
    who = f"rank {s.rank} ({s.host})" if s.host else f"rank {s.rank}"
    phase = "outside its named phases" if s.cause.kind == "step" else f"in {s.cause.name}"
    class_: FindingClass = "straggler"
    if s.is_jitter:
        class_, what = "jitter", f"stopped now and then {phase}"
    elif s.cause.kind == "data":
        class_, what = "data_stall", f"was slow to get its data ({s.cause.name})"
    else:
        what = f"was slow {phase}"
    part = s.cost_ns / s.span_of_time_ns if s.span_of_time_ns else 0.0
    sentence = (
        f"{who} {what} {in_steps(s.steps)}: {duration(s.cost_ns, s.cost_error_ns)} of {duration(s.span_of_time_ns)}"
        f" ({share(part)}); without it each of these steps would be about {duration(s.cost_per_step_ns)} shorter."
    )
    return Finding(class_, (s.rank,), None, s.steps, s.cost_ns, s.cost_error_ns, part, s.confidence, capital(sentence))


def _host(h: StragglerHost, span_ns: int) -> Finding:
    part = h.cost_ns / span_ns if span_ns else 0.0
    phases = " and ".join(["its steps" if c.kind == "step" else c.name for c in h.causes[:3]])
    sentence = (
        f"{len(h.ranks)} ranks of host {h.host} ({numbers(h.ranks)}) were slow together in {phases} {in_steps(h.steps)}:"
        f" {duration(h.cost_ns, h.cost_error_ns)} of {duration(span_ns)} ({share(part)}); look for what they share, not at one of them."
    )
    return Finding("straggler_host", h.ranks, None, h.steps, h.cost_ns, h.cost_error_ns, part, h.confidence, sentence)


def _link(link: SlowLink, topology: Topology, span_ns: int) -> Finding:
    part = link.cost_ns / span_ns if span_ns else 0.0
    if link.group is None:
        who = f"the link from {rank_name(link.ranks[0], topology.hosts)} to {rank_name(link.ranks[1], topology.hosts)}"
        what = "message"
    else:
        who, what = f"group {link.group} ({rank_list(link.ranks)})", link.op
    sentence = (
        f"{who} was slow {in_steps(link.steps)}: each {what} took {duration(link.per_transfer_ns)} longer than on its peers,"
        f" which cost {duration(link.cost_ns, link.cost_error_ns)} of {duration(span_ns)} ({share(part)})."
    )
    return Finding(
        "slow_link", link.ranks, link.group, link.steps, link.cost_ns, link.cost_error_ns, part, link.confidence, capital(sentence)
    )


def _exposed(cost_ns: int, steps: tuple[int, ...], span_ns: int) -> Finding:
    part = cost_ns / span_ns
    sentence = (
        f"Communication that no computation hides takes {duration(cost_ns)} of {duration(span_ns)} ({share(part)}),"
        " not counting waits for late ranks."
    )
    return Finding("exposed_communication", (), None, steps, cost_ns, 0, part, 0.95, sentence)


def _structure(graph: ReplayGraph, topology: Topology, first: int | None, last: int | None, span_ns: int) -> list[Finding]:
    """Time that no rank is to blame for: checkpoints, the pipeline's bubble, uneven stages."""
    told: list[Finding] = []
    stall = checkpoint_stall(graph, first, last, span_ns)
    if stall is not None:
        part = stall.cost_ns / span_ns
        sentence = (
            f"The job stood still for checkpoints {in_steps(stall.steps)}: {duration(stall.cost_ns)} of {duration(span_ns)} ({share(part)});"
            f" one takes a rank {duration(stall.usual_ns)}, and rank {stall.slowest} the longest."
        )
        told.append(Finding("checkpoint_stall", (), None, stall.steps, stall.cost_ns, 0, part, 0.95, sentence))
    bubble = pipeline_bubble(graph, topology, first, last, span_ns)
    if bubble is not None:
        part = bubble.wait_ns / span_ns
        sentence = (
            f"Ranks of the {bubble.stages} pipeline stages stand still {share(part)} of the time for messages of other stages"
            f" ({duration(bubble.wait_ns)} of {duration(span_ns)} on average); with {bubble.microbatches} microbatches a step the whole"
            f" bubble of an even pipeline is {share(bubble.schedule_share)} of its time."
        )
        told.append(Finding("pipeline_bubble", (), None, bubble.steps, bubble.wait_ns, 0, part, 0.95, sentence))
    uneven = imbalance(graph, topology, first, last, span_ns)
    if uneven is not None:
        part = uneven.cost_ns / span_ns
        sentence = (
            f"The work is spread unevenly over the pipeline: stage {uneven.stage} ({rank_list(uneven.ranks)}) computes"
            f" {share(uneven.excess)} more than the mean of the stages; spread evenly the job would be {duration(uneven.cost_ns)} of"
            f" {duration(span_ns)} ({share(part)}) shorter at best."
        )
        told.append(Finding("imbalance", uneven.ranks, None, uneven.steps, uneven.cost_ns, 0, part, 0.95, sentence))
    return sorted(told, key=lambda f: -f.cost_ns)


def _mismatches(found: Sequence[Mismatch]) -> list[Finding]:
    return [
        Finding(
            "mismatch",
            m.odd_ranks or m.candidates,
            m.group,
            () if m.step is None else (m.step,),
            0,
            0,
            0.0,
            m.confidence,
            m.sentence,
        )
        for m in found[:_MISMATCHES_TOLD]
    ]


def _missing(topology: Topology) -> list[Finding]:
    if not topology.missing_count:
        return []
    n = topology.missing_count
    sentence = (
        f"Nothing was received from {n} of {topology.world_size} ranks ({numbers(topology.missing)});"
        " what they did, and whether they were late, is not known."
    )
    return [Finding("missing_rank", topology.missing[:64], None, (), 0, 0, 0.0, 1.0, sentence)]


def _clock(timeline: Timeline, usual_ns: float) -> list[Finding]:
    doubt = clock_doubt(timeline)
    told: list[Finding] = []
    if len(doubt.components) > 1:
        sizes = ", ".join(f"{c[0]} and {len(c) - 1} more" if len(c) > 1 else c[0] for c in doubt.components[:4])
        sentence = (
            f"The clocks fall into {len(doubt.components)} sets that no communication connects ({sizes}):"
            " times of different sets cannot be compared."
        )
        told.append(Finding("clock", (), None, (), 0, 0, 0.0, 1.0, sentence))
    if usual_ns and doubt.bound_ns > _CLOCK_SHARE * usual_ns:
        sentence = (
            f"Two clocks may be wrong against each other by up to {duration(doubt.bound_ns)},"
            f" {share(doubt.bound_ns / usual_ns)} of a usual step: who came last is not always known."
        )
        told.append(Finding("clock", (), None, (), 0, 0, 0.0, 1.0, sentence))
    return told
