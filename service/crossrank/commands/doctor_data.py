"""Whether the clocks and the data of a job can carry an answer, and what is missing if not.

Pure: answers of the service in, checks out. A problem is what keeps ranks from being compared; a note is what makes answers weaker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

from crossrank.commands.check import Check
from crossrank.commands.figures import count, duration, percent, plain, ranges
from crossrank.commands.source import Answers, job_path

SAMPLE: Final = 500  # events of a kind looked at
WIDE_BOUND: Final = 0.05  # of a step
REJECTS_SHOWN: Final = 5
MANY: Final = 0.01  # of all events: too many to have been a slip
_COMMUNICATION: Final = ("collective", "send", "recv")


def check_job(answers: Answers, job: str) -> list[Check]:
    """All checks of one job. Raises NotFound for an unknown one."""
    summary = answers.get(job_path(job), {})
    clocks = answers.get(job_path(job, "clocks"), {})
    steps = answers.get(job_path(job, "steps"), {})["steps"]
    hangs = answers.get(job_path(job, "hangs"), {})
    kinds = summary["events"]["by_kind"]
    sample = {
        kind: answers.get(job_path(job, "events"), {"kind": kind, "limit": SAMPLE})["events"]
        for kind in _COMMUNICATION
        if kinds.get(kind)
    }
    checks = [*clock_checks(clocks, steps), *data_checks(summary, sample, hangs)]
    return [replace(c, job=job) for c in checks]


def clock_checks(clocks: dict[str, Any], steps: Sequence[dict[str, Any]]) -> Iterator[Check]:
    """Components, bounds, violations, contradictions."""
    domains = clocks["domains"]
    if not domains:
        return
    components: dict[int, list[str]] = {}
    for d in domains:
        components.setdefault(d["component"], []).append(plain(d["clock"], 40))
    if len(components) > 1:
        largest = max(components.values(), key=len)
        alone = [name for members in components.values() if members is not largest for name in members]
        shown = ", ".join(alone[:6]) + (", ..." if len(alone) > 6 else "")
        yield Check(
            "clocks", "components", "problem",
            f"{count(len(components))} sets of clocks that nothing connects; no link to the largest from {shown}",
            "record a collective or message that spans these hosts, or post clock.sample events from them",
        )  # fmt: skip
    else:
        yield Check("clocks", "components", "ok", f"{count(len(domains), 'clock')}, all connected")
    yield from _bounds(clocks, steps)
    v = clocks["violations"]
    state, do = ("ok", "")
    if v["after_fit"] > v["raw"] // 10 and v["after_fit"]:
        state, do = "note", "look at /clocks: a clock that jumps, or operations matched wrongly (group, seq)"
    if v["after_repair"]:
        state, do = "problem", "look at /clocks `dropped_syncs`: operations matched wrongly (group, seq)"
    text = f"{count(v['raw'])} events before their cause by the raw stamps, {count(v['after_fit'])} after alignment, {count(v['after_repair'])} after repair"
    yield Check("clocks", "violations", state, text, do)  # type: ignore[arg-type]
    if clocks["contradictions"]:
        text = f"clocks contradict themselves in {count(len(clocks['contradictions']), 'window')}"
        yield Check("clocks", "contradictions", "note", text, "look for time daemons that step the clock")
    if clocks["cycles"]:
        text = f"{count(clocks['cycles'], 'operation')} dropped because they closed a circle of causes"
        yield Check("clocks", "circles", "note", text, "post group and seq as the library counts them")


def _bounds(clocks: dict[str, Any], steps: Sequence[dict[str, Any]]) -> Iterator[Check]:
    bound = clocks["alignment"]["bound_ns"]
    if bound is None:
        yield Check(
            "clocks",
            "bound",
            "problem",
            "no bound: nothing ties the clocks together",
            "record collectives or messages between hosts",
        )
        return
    times = [s["duration_ns"] for s in steps if s["complete"]]
    if not times:
        yield Check("clocks", "bound", "ok", f"± {duration(bound)}")
        return
    share = bound / median(times)
    text = f"± {duration(bound)}, {percent(share)} of a step"
    if share > WIDE_BOUND:
        yield Check("clocks", "bound", "note", text, "post clock.sample events: two-way time requests narrow it")
    else:
        yield Check("clocks", "bound", "ok", text)


def data_checks(summary: dict[str, Any], sample: dict[str, list[dict[str, Any]]], hangs: dict[str, Any]) -> Iterator[Check]:
    """Ranks, rejects, steps, matching, what the communication spans lack."""
    ranks, events = summary["ranks"], summary["events"]
    if ranks["missing"]:
        text = f"nothing came from rank{'s' if len(ranks['missing']) > 1 else ''} {ranges(ranks['missing'], 4)}"
        yield Check("data", "ranks", "problem", text, "look whether they run, and whether their exporter reaches the service")
    elif summary.get("world_size"):
        yield Check("data", "ranks", "ok", f"all {count(summary['world_size'])} seen")
    else:
        yield Check(
            "data",
            "ranks",
            "note",
            f"{count(len(ranks['seen']))} seen; how many there are is not known",
            "post the topology (world_size)",
        )
    yield from _rejects(summary)
    steps, kinds = summary["steps"], events["by_kind"]
    if not steps["count"]:
        yield Check(
            "data",
            "steps",
            "problem",
            "none: no event carries a step, and none of kind `step` has come",
            "mark steps: one span of kind step a step and rank, or `step` on every event",
        )
    elif not kinds.get("step"):
        yield Check(
            "data",
            "steps",
            "note",
            f"{count(steps['count'])}, but no span of kind step says where they begin and end",
            "add one span of kind step a step and rank",
        )
    else:
        yield Check("data", "steps", "ok", f"{count(steps['count'])}, {count(steps['complete'])} complete")
    if not any(kinds.get(kind) for kind in _COMMUNICATION):
        yield Check(
            "data",
            "communication",
            "problem",
            "no collective, send or recv: ranks cannot be compared",
            "record the communication of the ranks",
        )
    for kind, rows in sample.items():
        yield from _communication(kind, rows)
    yield from _matching(summary)
    if hangs.get("collect"):
        yield Check("data", "hang", "note", plain(hangs["sentence"], 300), plain(hangs["collect"], 300))


def _rejects(summary: dict[str, Any]) -> Iterator[Check]:
    total = sum(r["count"] for r in summary["rejects"])
    if not total:
        yield Check("data", "rejected", "ok", "no event")
        return
    by_reason: dict[str, int] = {}
    for r in summary["rejects"]:
        by_reason[r["reason"]] = by_reason.get(r["reason"], 0) + r["count"]
    top = sorted(by_reason.items(), key=lambda item: (-item[1], item[0]))[:REJECTS_SHOWN]
    text = f"{count(total, 'event')}: " + ", ".join(f"{plain(reason, 40)} {count(n)}" for reason, n in top)
    bad = total > MANY * max(summary["events"]["stored"], 1)
    yield Check("data", "rejected", "problem" if bad else "note", text, "docs/formats.md says what each reason means")


def _communication(kind: str, rows: Sequence[dict[str, Any]]) -> Iterator[Check]:
    n = len(rows)
    if not n:
        return
    of = f"of the first {count(n)} {kind} spans"
    launches = sum(bool(r["is_async"]) for r in rows)
    if launches == n:
        yield Check(
            "data",
            kind,
            "problem",
            f"all {of} are asynchronous launches, which say nothing about when the operation ran",
            "record the device side too, or the wait for it",
        )
        return
    no_group = sum(r.get("group") is None for r in rows)
    no_seq = sum(r.get("seq") is None for r in rows)
    if no_group:
        yield Check(
            "data",
            kind,
            "problem" if no_group == n else "note",
            f"{count(no_group)} {of} name no group",
            "send `group`: without it members cannot be told",
        )
    if no_seq:
        yield Check(
            "data",
            kind,
            "note",
            f"{count(no_seq)} {of} carry no seq and are matched by their order",
            "send `seq`: one lost event shifts an order",
        )
    if not no_group and not no_seq:
        yield Check("data", kind, "ok", "all looked at carry group and seq")


def _matching(summary: dict[str, Any]) -> Iterator[Check]:
    unmatched = {plain(reason, 60): n for reason, n in (summary.get("unmatched") or {}).items() if n}
    if not unmatched:
        yield Check("data", "matching", "ok", "every operation found its members")
        return
    total = sum(unmatched.values())
    text = f"{count(total, 'span')} without the other side: " + ", ".join(f"{reason} {count(n)}" for reason, n in unmatched.items())
    comm = sum(summary["events"]["by_kind"].get(kind, 0) for kind in _COMMUNICATION)
    bad = total > 0.1 * max(comm, 1)
    yield Check(
        "data",
        "matching",
        "problem" if bad else "note",
        text,
        "look for ranks whose events are lost, and for group names that differ between ranks",
    )
