"""`crossrank diff`: what moved on the critical path between two jobs or two ranges of steps, and a gate for CI.

The gate closes (the command ends with code 1) when the median step got longer by more than the share allowed *and* by more than the
noise of both sides explains. Noise alone never fails a build; a change too noisy to tell is said to be one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from crossrank.commands.client import HttpAnswers
from crossrank.commands.figures import plain
from crossrank.commands.reading import waiting
from crossrank.commands.source import job_path, open_answers, step_range
from crossrank.errors import BadParameter

StepRange = tuple[int | None, int | None]
_SHOWN = 12


def share_of(text: str) -> float:
    """`3%` and `3` are three hundredths. Raises BadParameter."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 10_000:
        raise BadParameter(f"--fail-over wants a percentage such as 3%, not {text[:40]!r}", field="fail_over")
    return value / 100


def run_diff(
    base: str, job: str, *, url: str | None, data: Path | None, base_range: StepRange, asked: StepRange, fail_over: str | None,
    as_json: bool,
) -> bool:  # fmt: skip
    """Prints the comparison; true when the gate closes. Raises CrossrankError."""
    allowed = None if fail_over is None else share_of(fail_over)
    ends = {"base_from": base_range[0], "base_to": base_range[1]}
    answers = open_answers(url, data)
    try:
        with waiting("deriving the answers of both"):
            if isinstance(answers, HttpAnswers):
                for one in dict.fromkeys((base, job)):
                    answers.post(job_path(one, "derive"), {"wait": "true"})
            chosen = {"base": base, **step_range(*asked), **{k: v for k, v in ends.items() if v is not None}}
            found = answers.get(job_path(job, "compare"), chosen)
    finally:
        answers.close()
    closed = allowed is not None and is_slower(found, allowed)
    if as_json:
        print(json.dumps({**found, "failed": closed}, indent=2))
    else:
        print("\n".join(lines(found, base, job)))
    if closed and allowed is not None:
        print(
            f"slower by more than {allowed:.3g} of a step" if as_json else f"FAILED: more than {100 * allowed:g} % slower",
            file=sys.stderr,
        )
    return closed


def is_slower(found: dict[str, Any], allowed: float) -> bool:
    """Whether the steps got longer by more than the share allowed and by more than noise."""
    return bool(found["step"]["moved"] and found["ratio"] is not None and found["ratio"] - 1 > allowed)


def lines(found: dict[str, Any], base: str, job: str) -> list[str]:
    """The comparison as text."""
    out = [
        f"{plain(base)} -> {plain(job)}: {found['steps_before']} and {found['steps_after']} steps",
        _line(found["step"], "median step"),
    ]
    moved = [part for part in found["parts"] if part["moved"]]
    out += [_line(part, f"{plain(part['by'])} {plain(part['what'])}") for part in moved[:_SHOWN]]
    if len(moved) > _SHOWN:
        out.append(f"  and {len(moved) - _SHOWN} more")
    if not moved:
        out.append("  no part of the critical path moved by more than its noise")
    return out + [f"  {plain(link['sentence'], 300)}" for link in found["links"]]


def _line(part: dict[str, Any], what: str) -> str:
    band = "?" if part["band_ns"] is None else f"{part['band_ns'] / 1e6:.3g}"
    noise = "" if part["moved"] else "  (within noise)" if part["band_ns"] is not None else "  (too few steps to tell)"
    share = f" ({100 * part['change_ns'] / part['before_ns']:+.1f} %)" if part["before_ns"] else ""
    return (
        f"  {what}: {part['before_ns'] / 1e6:.4g} -> {part['after_ns'] / 1e6:.4g} ms,"
        f" {part['change_ns'] / 1e6:+.3g} ± {band} ms{share}{noise}"
    )
