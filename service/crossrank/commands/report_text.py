"""A report as text for a terminal: the costliest finding first, then what it rests on, then what is missing from it.

Pure: answers in, styled lines out. The order is that of a reader in a hurry; the last lines say how far to trust the first.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from crossrank.commands.console import AnswerConsole
from crossrank.commands.figures import count, duration, percent, plain, ranges, sparkline, with_error
from crossrank.commands.report import Report

WIDEST: Final = 120
FINDINGS_SHOWN: Final = 10
STRAGGLERS_SHOWN: Final = 10
_LABEL: Final = 10  # columns of the labels on the left
_INDENT: Final = " " * (_LABEL + 2)
_WITH_UNIT: Final = re.compile(r"(\d|±) (?=(±|%|ns|µs|ms|s|min|ppm|\d)\b|±|%)")


def print_report(report: Report, console: Console | None = None) -> None:
    """Prints a report on stdout, or on the console given."""
    console = console or AnswerConsole(highlight=False)
    for line in render(report, min(console.width, WIDEST)):
        console.print(line, soft_wrap=True)


def render(report: Report, width: int) -> list[Text]:
    """The lines of a report, none wider than `width` except for links."""
    sections = (
        headline(report, width),
        job_facts(report, width),
        step_times(report, width),
        findings(report, width),
        stragglers(report, width),
        clocks(report, width),
        missing(report, width),
    )
    lines: list[Text] = []
    for section in map(list, sections):
        lines += [*section, Text()] if section else []
    return lines[:-1]


def headline(report: Report, width: int) -> Iterator[Text]:
    """The costliest finding in one sentence, or that there is none."""
    found = report.bottlenecks["findings"]
    steps = report.steps["steps"]
    if found:
        sentence, style = plain(found[0]["sentence"], 500), "bold yellow"
    elif steps:
        sentence, style = f"No bottleneck beyond noise and clock bounds in {count(len(steps), 'step')}.", "bold green"
    else:
        sentence, style = "No training step to report on: no event carries a step, and none of kind `step` has come.", "bold"
    yield Text(f"{plain(report.summary['job'])}", "bold")
    for line in wrap(sentence, width):
        yield Text(line, style)


def job_facts(report: Report, width: int) -> Iterator[Text]:
    """Ranks, hosts, steps, time and events: what the report looked at."""
    job, ranks, steps = report.summary, report.summary["ranks"], report.summary["steps"]
    seen, absent = len(ranks["seen"]), ranks["missing"]
    text = f"{count(seen)} of {count(job['world_size'])}" if job.get("world_size") else count(seen)
    text += f" on {count(len(job['hosts']), 'host')}"
    if absent:
        text += f"; nothing came from {_ranks(absent)}"
    yield from _fact("ranks", text, width, "red" if absent else "")
    if job["attempt"]:
        yield from _fact("attempt", f"{job['attempt']} (the job was restarted)", width)
    span = job.get("span")
    if span:
        start = datetime.fromtimestamp(span["start_ns"] // 1_000_000_000, UTC)
        yield from _fact("time", f"{duration(span['duration_ns'])} from {start:%Y-%m-%d %H:%M:%S} UTC", width)
    events = job["events"]
    parts = [count(events["stored"], "event")]
    parts += [f"{count(events['open'])} still open"] if events.get("open") else []
    parts += [f"{count(events['duplicate'])} sent more than once"] if events.get("duplicate") else []
    yield from _fact("events", ", ".join(parts), width)
    incomplete = steps["count"] - steps["complete"]
    yield from _fact("steps", count(steps["count"]) + (f", {count(incomplete)} incomplete" if incomplete else ""), width)


def step_times(report: Report, width: int) -> Iterator[Text]:
    """Durations of the complete steps as a row of bars, with the median and the longest."""
    steps = [s for s in report.steps["steps"] if s["complete"]]
    if not steps:
        return
    longest = max(steps, key=lambda s: int(s["duration_ns"]))
    middle = median(s["duration_ns"] for s in steps)
    yield Text(_label("step time")).append(sparkline([s["duration_ns"] for s in steps], width - len(_INDENT)), "cyan")
    text = f"median {duration(middle)}, longest {duration(longest['duration_ns'])} (step {longest['step']}"
    text += f", rank {longest['last_rank']} last)" if longest["last_rank"] is not None else ")"
    yield from _fact("", text, width)


def findings(report: Report, width: int) -> Iterator[Text]:
    """Each finding: its figures and, but for the first, its sentence."""
    found = report.bottlenecks["findings"]
    if not found:
        return
    rows: list[tuple[str, ...]] = [("what", "where", "steps", "cost", "share", "sure")]
    rows += [_finding_row(f) for f in found[:FINDINGS_SHOWN]]
    padded = _columns(rows, width - 4, spare=("share", "steps", "sure"))
    yield Text(f"    {padded[0]}", "dim")
    for number, (finding, line) in enumerate(zip(found, padded[1:], strict=False), start=1):
        yield Text(f"{number:>2}  {line}", "bold")
        if number > 1:  # the first one's sentence is the headline
            yield from (Text(f"    {part}") for part in wrap(plain(finding["sentence"], 500), width - 4))
    if len(found) > FINDINGS_SHOWN:
        yield Text(f"    and {count(len(found) - FINDINGS_SHOWN, 'finding')} more (--json shows all)", "dim")
    if report.base and found[0].get("evidence"):
        yield Text(f"    evidence: {report.base}{plain(found[0]['evidence'][0], 300)}", "dim")


def stragglers(report: Report, width: int) -> Iterator[Text]:
    """The ranks that are late by themselves."""
    found = report.stragglers["stragglers"]
    if not found:
        yield from _fact("stragglers", "none beyond noise and clock bounds", width)
        return
    rows: list[tuple[str, ...]] = [("straggler", "host", "late in", "steps", "cost", "per step", "sure")]
    rows += [_straggler_row(s) for s in found[:STRAGGLERS_SHOWN]]
    header, *lines = _columns(rows, width - 4, spare=("host", "per step", "steps", "sure"))
    yield Text(f"    {header}", "dim")
    yield from (Text(f"    {line}") for line in lines)
    if len(found) > STRAGGLERS_SHOWN:
        yield Text(f"    and {count(len(found) - STRAGGLERS_SHOWN, 'rank')} more (--json shows all)", "dim")


def clocks(report: Report, width: int) -> Iterator[Text]:
    """How far the clocks were off, how well they are aligned, and what impossibilities that removed."""
    domains = report.clocks["domains"]
    if not domains:
        return
    alignment, violations = report.clocks["alignment"], report.clocks["violations"]
    offsets = [abs(k["offset_ns"]) for d in domains for k in d["knots"]] or [abs(d["offset_ns"]) for d in domains]
    drifts = [abs(d["drift_ppm"]) for d in domains if d["drift_ppm"] is not None]
    stepped = sum(len(d["clock_steps"]) for d in domains)
    text = f"{count(len(domains), 'clock')}, off by up to {duration(max(offsets))}"
    text += f" and {max(drifts):.1f} ppm of drift" if drifts else ""
    text += f", {count(stepped, 'jump')}" if stepped else ""
    text += f"; aligned to {plain(alignment['reference'])}"
    text += f" within ± {duration(alignment['bound_ns'])}" if alignment["bound_ns"] is not None else ", without a bound"
    yield from _fact("clocks", text, width)
    text = (
        f"{count(violations['raw'])} events before their cause by the raw stamps, {count(violations['after_fit'])} after alignment"
    )
    yield from _fact("", f"{text}, {count(violations['after_repair'])} after repair", width)
    if alignment["components"] > 1:
        text = f"{count(alignment['components'])} sets of clocks that nothing connects: times are not comparable between them"
        yield from _fact("", text, width, "red")


def missing(report: Report, width: int) -> Iterator[Text]:
    """What is not in the report although it was sent or should have been."""
    for reason, number in report.summary["dropped"].items():
        yield from _fact("left out", f"{count(number, 'event')}: {plain(reason)}", width, "yellow")
    for reason, number in (report.summary.get("unmatched") or {}).items():
        yield from _fact("unmatched", f"{count(number)}: {plain(reason)}", width, "yellow")
    for conflict in (report.summary.get("conflicts") or ())[:5]:
        yield from _fact("conflict", plain(conflict, 300), width, "yellow")
    if report.summary.get("partial"):
        yield from _fact("damaged", "; ".join(plain(p, 200) for p in report.summary["partial"]), width, "red")
    if any(a.get("truncated") for a in (report.summary, report.bottlenecks, report.steps)):
        yield from _fact("truncated", "not every step is in this report; choose a range with --from and --to", width, "yellow")


def _finding_row(f: dict[str, Any]) -> tuple[str, ...]:
    ranks = f.get("ranks") or ([f["rank"]] if f.get("rank") is not None else [])
    parts = ([_ranks(ranks)] if ranks else []) + ([f"group {plain(f['group'], 20)}"] if f.get("group") else [])
    where = " in ".join(parts) or "the job"
    has_cost = f["cost_ns"] != 0  # a hang or a doubt has none of its own
    cost, share = (with_error(f["cost_ns"], f["cost_error_ns"]), percent(f["share"])) if has_cost else ("", "")
    return (plain(f["class"], 24), where, ranges(f["steps"], 2), cost, share, sure(f["confidence"]))


def _straggler_row(s: dict[str, Any]) -> tuple[str, ...]:
    steps = s["steps"]
    per_step = s.get("cost_per_step_ns")
    if per_step is None:
        per_step = s["cost_ns"] / len(steps) if steps else None
    cause = f"{plain(s['cause']['kind'], 12)} {plain(s['cause']['name'], 24)}"
    cost = with_error(s["cost_ns"], s["cost_error_ns"])
    return (
        f"rank {s['rank']}",
        plain(s.get("host") or "", 16),
        cause,
        ranges(steps, 2),
        cost,
        duration(per_step),
        sure(s["confidence"]),
    )


def sure(confidence: float) -> str:
    """A confidence as per cent; never a full 100, which nothing measured is."""
    return "> 99.9 %" if confidence > 0.999 else percent(confidence)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width`; a number is not parted from its unit or its error."""
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(_WITH_UNIT.sub("\\1\u00a0", text), width)]


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks, 4)}"


def _columns(rows: Sequence[Sequence[str]], width: int, spare: Sequence[str]) -> list[str]:
    """Rows padded to common column widths, two spaces apart. Where they do not fit, columns go in the order of `spare`; then lines are cut."""
    kept, dropped = list(range(len(rows[0]))), list(spare)
    while True:
        widths = [max(len(row[c]) for row in rows) for c in kept]
        if sum(widths) + 2 * (len(kept) - 1) <= width or not dropped:
            break
        kept.remove(rows[0].index(dropped.pop(0)))
    lines = ["  ".join(row[c].ljust(w) for c, w in zip(kept, widths, strict=True)).rstrip() for row in rows]
    return [line if len(line) <= width else line[: width - 1] + "…" for line in lines]


def _label(label: str) -> str:
    return f"{label:<{_LABEL}}  "


def _fact(label: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    for number, part in enumerate(wrap(text, max(20, width - len(_INDENT)))):
        yield Text(_label(label) if number == 0 else _INDENT).append(part, style)
