"""A frame of `crossrank top` as lines of a terminal: what is urgent first, as many lines as there is room for. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from rich.text import Text

from crossrank.commands.figures import count, duration, plain, ranges, sparkline
from crossrank.commands.report_text import sure, wrap
from crossrank.commands.top import Frame

_LABEL: Final = 10
_INDENT: Final = " " * (_LABEL + 2)
FINDINGS_SHOWN: Final = 6
WAITING_SHOWN: Final = 5
RECENT: Final = 10  # steps against which the others are seen


def render(frame: Frame, width: int, *, height: int | None, fault: str | None) -> list[Text]:
    """The lines of a frame, none wider than `width`, at most `height` of them."""
    lines = [*_state(frame, width), *_hang(frame, width), *_steps(frame, width), *_behind(frame, width), *_findings(frame, width)]
    tail = [Text(part, "red") for part in wrap(f"last look failed: {plain(fault, 300)}", width)] if fault else []
    if height is not None:
        tail.append(Text("q ends", "dim"))
        lines = lines[: max(height - len(tail) - 1, 1)]
    return [*lines, *tail]


def _state(frame: Frame, width: int) -> Iterator[Text]:
    ranks, steps, events = frame.summary["ranks"], frame.summary["steps"], frame.summary["events"]
    yield Text(plain(frame.job, max(width, 1)), "bold")
    text = count(len(ranks["seen"])) + (f" of {count(frame.summary['world_size'])}" if frame.summary.get("world_size") else "")
    text += f" on {count(len(frame.summary['hosts']), 'host')}"
    text += f"; nothing from {ranges(ranks['missing'], 4)}" if ranks["missing"] else ""
    yield from _fact("ranks", text, width, "red" if ranks["missing"] else "")
    rate = "" if frame.events_per_s is None else f", {count(round(frame.events_per_s))} a second"
    silent = frame.hangs.get("silent_ns")
    rate += f", last one {duration(silent)} ago" if silent else ""
    rejected = sum(r["count"] for r in frame.summary["rejects"])
    rate += f", {count(rejected)} rejected" if rejected else ""
    yield from _fact("events", count(events["stored"]) + rate, width, "yellow" if rejected else "")
    yield from _fact(
        "steps", f"{count(steps['count'])}, {count(steps['complete'])} complete, latest {_number(steps['last'])}", width
    )


def _number(step: int | None) -> str:
    return "none" if step is None else str(step)


def _hang(frame: Frame, width: int) -> Iterator[Text]:
    hangs = frame.hangs
    if not hangs["hung"]:
        yield from _fact("hang", f"none; {count(len(hangs['waiting']), 'operation')} open", width)
        return
    yield from _fact("hang", plain(hangs["sentence"], 500), width, "bold red")
    for c in hangs["culprits"][:WAITING_SHOWN]:
        yield from _fact("", f"rank {c['rank']}: {plain(c['reason'], 40)}. {plain(c['proof'], 300)}", width, "red")


def _steps(frame: Frame, width: int) -> Iterator[Text]:
    done = [s for s in frame.steps if s["complete"]]
    if not done:
        return
    times = [s["duration_ns"] for s in done]
    yield Text(f"{'step time':<{_LABEL}}  ").append(sparkline(times, max(width - len(_INDENT), 1)), "cyan")
    latest, longest = done[-1], max(done, key=lambda s: int(s["duration_ns"]))
    text = f"latest {duration(latest['duration_ns'])}, median of {count(len(done))} {duration(median(times))}"
    text += (
        f", last {RECENT} {duration(median(times[-RECENT:]))}, longest {duration(longest['duration_ns'])} (step {longest['step']})"
    )
    yield from _fact("", text, width)


def behind(ranks: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(rank, steps behind) of ranks that lack more than the one step in which everybody may be."""
    most = max((r["steps"] for r in ranks), default=0)
    return sorted(((r["rank"], most - r["steps"]) for r in ranks if most - r["steps"] > 1), key=lambda pair: (-pair[1], pair[0]))


def _behind(frame: Frame, width: int) -> Iterator[Text]:
    late = behind(frame.ranks)
    if not late:
        yield from _fact("behind", "no rank", width)
        return
    text = f"rank{'s' if len(late) > 1 else ''} {ranges([r for r, _ in late], 6)}, by up to {count(late[0][1], 'step')}"
    yield from _fact("behind", text, width, "yellow")


def _findings(frame: Frame, width: int) -> Iterator[Text]:
    if not frame.findings:
        yield from _fact("findings", "none beyond noise and clock bounds", width, "green")
        return
    for i, f in enumerate(frame.findings[:FINDINGS_SHOWN]):
        text = f"{plain(f['class'], 24)}: {plain(f['sentence'], 300)} ({sure(f['confidence'])} sure)"
        yield from _fact("findings" if i == 0 else "", text, width, "bold yellow" if i == 0 else "")
    if len(frame.findings) > FINDINGS_SHOWN:
        yield from _fact("", f"and {count(len(frame.findings) - FINDINGS_SHOWN)} more: crossrank report", width, "dim")


def _fact(label: str, text: str, width: int, style: str = "") -> Iterator[Text]:
    for number, part in enumerate(wrap(text, max(20, width - len(_INDENT)))):
        yield Text(f"{label:<{_LABEL}}  " if number == 0 else _INDENT).append(part, style)
