"""Numbers and step ranges in plain words, for the one sentence of every finding."""

from __future__ import annotations

from collections.abc import Sequence

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


def duration(value_ns: float, error_ns: float | None = None) -> str:
    """`151 ms`, `3.4 s`, or with an error: `151 ± 12 ms`, `1.1 s ± 720 us` where one unit would hide it. Two digits at least."""
    size, unit = next(((s, u) for s, u in _UNITS if abs(value_ns) >= s), _UNITS[-1])
    if not error_ns:  # unknown, or exact
        return f"{_digits(value_ns / size)} {unit}"
    if error_ns < size / 100:
        return f"{value_ns / size:.3g} {unit} ± {duration(error_ns)}"
    return f"{_digits(value_ns / size)} ± {_digits(error_ns / size)} {unit}"


def _digits(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def numbers(values: Sequence[int], most: int = 4) -> str:
    """`5-9`, `5-9, 12`, and after `most` ranges `and N more`. Ascending input."""
    ranges: list[list[int]] = []
    for v in values:
        if ranges and v == ranges[-1][1] + 1:
            ranges[-1][1] = v
        else:
            ranges.append([v, v])
    told = [str(a) if a == b else f"{a}-{b}" for a, b in ranges[:most]]
    rest = sum(b - a + 1 for a, b in ranges[most:])
    return ", ".join(told) + (f" and {rest} more" if rest else "")


def in_steps(steps: Sequence[int]) -> str:
    """`in step 5` or `in steps 5-9, 12`."""
    return f"in step {steps[0]}" if len(steps) == 1 else f"in steps {numbers(steps)}"


def rank_name(rank: int, hosts: dict[int, str]) -> str:
    """`rank 2 (host1)`, or without the host where it is not known."""
    return f"rank {rank} ({hosts[rank]})" if rank in hosts else f"rank {rank}"


def rank_list(ranks: Sequence[int]) -> str:
    """`rank 2` or `ranks 0-3, 7`."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {numbers(sorted(ranks))}"


def share(part: float) -> str:
    """`4.4 %`."""
    return f"{_digits(100 * part)} %"


def capital(sentence: str) -> str:
    """First letter large, the rest as it is."""
    return sentence[:1].upper() + sentence[1:]
