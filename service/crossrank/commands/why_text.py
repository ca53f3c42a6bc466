"""The critical path of a step as a story: one line a stretch, one line a change of ranks, and what it would be worth to repair.

Pure: answers in, styled lines out. Times are since the start of the step; a stretch below 1 % of the step is folded into a line that
says how many there were, unless all are asked for, so that nothing silently disappears.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from crossrank.commands.console import AnswerConsole
from crossrank.commands.figures import count, duration, percent, plain
from crossrank.commands.report_text import WIDEST, wrap
from crossrank.commands.why import Why, causes

SMALL: Final = 0.01  # of the step: folded
LARGE: Final = 0.05  # what limits next is told
_HEAD: Final = f"{'at':>8}  {'for':>8}  {'share':>6}  "
_INDENT: Final = " " * len(_HEAD)


def print_why(why: Why, *, show_all: bool, console: Console | None = None) -> None:
    """Prints the story on stdout, or on the console given."""
    console = console or AnswerConsole(highlight=False)
    for line in render(why, min(console.width, WIDEST), show_all=show_all):
        console.print(line, soft_wrap=True)


def render(why: Why, width: int, *, show_all: bool = False) -> list[Text]:
    """The lines, none wider than `width`."""
    sections = (
        headline(why, width),
        story(why, width, show_all=show_all),
        savings(why, width),
        near(why, width),
        trust(why, width),
    )
    lines: list[Text] = []
    for section in map(list, sections):
        lines += [*section, Text()] if section else []
    return lines[:-1]


def headline(why: Why, width: int) -> Iterator[Text]:
    """How long the step took against its neighbours, and the largest cause."""
    path, total = why.path, why.path["total_ns"]
    others = [s["duration_ns"] for s in why.steps if s["complete"] and s["step"] != path["step"]]
    text = f"Step {path['step']} of {plain(why.job)} took {duration(total)}"
    if others:
        usual = median(others)
        more = total - usual
        text += f"; its neighbours take {duration(usual)}"
        text += f", so it is {duration(abs(more))} {'longer' if more > 0 else 'shorter'}" if abs(more) > SMALL * usual else ""
    yield from (Text(line, "bold") for line in wrap(f"{text}.", width))
    largest = causes(path)[:1]
    if largest:
        c = largest[0]
        said = f"Most of its path is {_what(c.kind, c.name)} on {_who(why, c.rank)}: {duration(c.on_path_ns)}, {percent(c.on_path_ns / total)}."
        yield from (Text(line) for line in wrap(said, width))


def story(why: Why, width: int, *, show_all: bool) -> Iterator[Text]:
    """Every stretch and every change of ranks, in the order of time."""
    path = why.path
    total = path["total_ns"]
    yield Text(f"{_HEAD}who and what", "dim")
    hops = sorted(path["hops"], key=lambda h: h["at_ns"])
    folded: list[dict[str, Any]] = []
    for segment in path["segments"]:
        passed = [h for h in hops if h["at_ns"] <= segment["start_ns"]]
        hops = hops[len(passed) :]
        small = segment["on_path_ns"] < SMALL * total and not show_all
        if folded and (passed or not small):
            yield _folded(folded, total, width)
            folded = []
        for hop in passed:
            yield from _hop(why, hop, width)
        if small:
            folded.append(segment)
        else:
            yield from _stretch(why, segment, width, show_all=show_all)
    if folded:
        yield _folded(folded, total, width)


def _stretch(why: Why, s: dict[str, Any], width: int, *, show_all: bool) -> Iterator[Text]:
    start, total = why.path["start_ns"], why.path["total_ns"]
    on_path = s["on_path_ns"]
    head = f"{duration(s['start_ns'] - start):>8}  {duration(on_path):>8}  {percent(on_path / total):>6}  "
    style = "bold" if on_path >= 0.1 * total else ""
    what = f"{_who(why, s['rank'])}: {_what(s['kind'], s['name'])}"
    if s["slack_ns"]:
        what += f" (could grow by {duration(s['slack_ns'])})"
    for i, part in enumerate(wrap(what, max(20, width - len(head)))):
        yield Text(head if i == 0 else _INDENT).append(part, style)
    limit = s["next_limit"]
    if limit and on_path >= (SMALL if show_all else LARGE) * total:
        text = (
            f"after {duration(limit['after_ns'])} less, {_what(limit['kind'], limit['name'])} on {_who(why, limit['rank'])} limits"
        )
        yield from (Text(f"{_INDENT}{part}", "dim") for part in wrap(text, max(20, width - len(_INDENT))))


def _hop(why: Why, hop: dict[str, Any], width: int) -> Iterator[Text]:
    group = f" of group {plain(hop['group'], 24)}" if hop["group"] is not None else ""
    number = f" number {hop['seq']}" if hop["seq"] is not None and hop["seq"] >= 0 else ""
    came = "came last to" if hop["edge"] == "collective" else "was awaited to send"
    text = (
        f"-> {_who(why, hop['to_rank'])} waited: {_who(why, hop['from_rank'])} {came} the {plain(hop['edge'], 16)}{number}{group}"
    )
    yield from (Text(f"{_INDENT}{part}", "cyan") for part in wrap(text, max(20, width - len(_INDENT))))


def _folded(segments: Sequence[dict[str, Any]], total: int, width: int) -> Text:
    ns = sum(s["on_path_ns"] for s in segments)
    text = f"{'':>8}  {duration(ns):>8}  {percent(ns / total):>6}  {count(len(segments), 'short stretch', 'short stretches')} (--all shows them)"
    return Text(text[:width], "dim")


def savings(why: Why, width: int) -> Iterator[Text]:
    """What the step would be shorter by, by replay."""
    if not why.savings:
        return
    error = max(abs(s.replay_error) for s in why.savings)
    yield Text("what it would save", "bold")
    for s in why.savings:
        usual, gone = (max(s.recorded_ns - ns, 0) for ns in (s.usual_ns, s.gone_ns))
        text = f"{_what(s.cause.kind, s.cause.name)} of {_who(why, s.cause.rank)} as fast as its peers: {duration(usual)} of {duration(s.recorded_ns)}"
        text += f"; gone altogether: {duration(gone)}"
        yield from (Text(f"{'  ' if i == 0 else '    '}{part}") for i, part in enumerate(wrap(text, width - 4)))
    said = (
        f"by replaying the job; unchanged, the replay is {percent(error)} off the recording"
        if error
        else "by replaying the job; unchanged, the replay gives the recording exactly"
    )
    yield from (Text(f"  {part}", "dim") for part in wrap(said, width - 2))


def near(why: Why, width: int) -> Iterator[Text]:
    """Who is close behind the path."""
    close = [o for o in why.path["near"] if o["slack_ns"] <= 0.1 * why.path["total_ns"] and o["end_ns"] > o["start_ns"]][:5]
    if not close:
        return
    yield Text("close behind", "bold")
    for o in close:
        text = f"{_who(why, o['rank'])}: {_what(o['kind'], o['name'])} could grow by {duration(o['slack_ns'])}"
        yield from (Text(f"  {part}") for part in wrap(text, width - 2))


def trust(why: Why, width: int) -> Iterator[Text]:
    """How far to trust the changes between ranks."""
    bound, components = why.path["alignment"]["bound_ns"], why.path["alignment"]["components"]
    text = (
        f"Clocks agree within ± {duration(bound)}; a change of ranks that rests on less is not proven."
        if bound is not None
        else "The clocks have no bound: changes of ranks are not proven."
    )
    if components > 1:
        text += f" {count(components)} sets of clocks are not connected; times are not comparable between them."
    yield from (Text(line, "dim") for line in wrap(text, width))


def _who(why: Why, rank: int) -> str:
    host = why.hosts.get(rank)
    return f"rank {rank}" + (f" ({plain(host, 24)})" if host else "")


def _what(kind: str, name: str) -> str:
    if kind == "idle":
        return "nothing recorded"
    return plain(kind, 16) if name == kind or not name else f"{plain(kind, 16)} {plain(name, 40)}"
