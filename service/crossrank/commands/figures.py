"""How figures are written in the terminal: durations, counts, shares, step ranges, small charts, names of strangers.

Every value carries its unit and three significant digits, because the fourth is noise in a shared cluster. Names of jobs,
hosts and events come from senders we do not control, so characters that could move the cursor or change colours are
replaced before they reach a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

BARS: Final = "▁▂▃▄▅▆▇█"

_TIME_UNITS: Final = ((60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_SIZE_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_FINEST: Final = 0.01  # of a unit; an error below that is told in its own
_ONE_BAR_SPREAD: Final = 0.01  # a series that varies by less than 1 % is drawn flat


def _three_digits(value: float) -> str:
    """Three significant digits without an exponent: 1.23, 12.3, 123, 1,234."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def _two_digits(error: float) -> str:
    """An error to two digits, hundredths at the finest: 12, 9.0, 0.41, 0.01."""
    size = abs(error)
    if size >= 9.95:
        return f"{error:,.0f}"
    return f"{error:.1f}" if size >= 0.995 else f"{size:.2f}"


def duration(ns: float | None) -> str:
    """Nanoseconds in the unit that suits them, e.g. `12.3 ms`; `?` where unknown."""
    if ns is None:
        return "?"
    for size, unit in _TIME_UNITS:
        if abs(ns) >= size * (2 if unit == "min" else 0.9995):
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def with_error(ns: float | None, error_ns: float | None) -> str:
    """A cost and its error, e.g. `12.3 ± 0.4 ms`: in one unit unless that would hide the error, as in `1.12 s ± 720 µs`."""
    if ns is None or not error_ns:  # unknown, or exact
        return duration(ns)
    for size, unit in _TIME_UNITS:
        if max(abs(ns), abs(error_ns)) >= size * (2 if unit == "min" else 0.9995):
            if abs(error_ns) < size * _FINEST:
                return f"{duration(ns)} ± {duration(error_ns)}"
            return f"{_three_digits(ns / size)} ± {_two_digits(error_ns / size)} {unit}"
    return f"{ns:.0f} ± {error_ns:.0f} ns"


def size(count_bytes: float) -> str:
    """Bytes in binary units, e.g. `3.20 MiB`."""
    for unit_bytes, unit in _SIZE_UNITS:
        if count_bytes >= unit_bytes:
            return f"{_three_digits(count_bytes / unit_bytes)} {unit}"
    return f"{count_bytes:.0f} B"


def count(number: int, noun: str = "", plural: str = "") -> str:
    """A count with thousands separators and its noun: `1 event`, `12,345 events`."""
    if not noun:
        return f"{number:,}"
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(share: float | None) -> str:
    """A share of 1 as per cent, `?` where unknown."""
    return "?" if share is None else f"{100 * share:.1f} %"


def ranges(numbers: Iterable[int], most: int = 6) -> str:
    """Whole numbers as ranges, e.g. `5-9, 12`; after `most` ranges `…` stands for the rest."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    written = [str(a) if a == b else f"{a}-{b}" for a, b in parts[:most]]
    return ", ".join(written) + (", …" if len(parts) > most else "")


def sparkline(values: Sequence[float | None], width: int = 80) -> str:
    """One row of bars from smallest to largest value; more values than `width` are shown by the largest of each bin.

    The largest, not the mean: one slow step in a thousand is what the reader looks for. Unknown values are blank.
    """
    binned = [_largest(values[i * len(values) // width : (i + 1) * len(values) // width]) for i in range(width)]
    shown = binned if len(values) > width else list(values)
    known = [v for v in shown if v is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    if high - low <= _ONE_BAR_SPREAD * high:
        return "".join(" " if v is None else BARS[0] for v in shown)
    scale = (len(BARS) - 1) / (high - low)
    return "".join(" " if v is None else BARS[round((v - low) * scale)] for v in shown)


def _largest(values: Sequence[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)


def plain(name: object, most: int = 80) -> str:
    """A sender's word made safe to print: control characters become `\ufffd`, long words are cut."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in str(name))
    return text if len(text) <= most else text[: most - 1] + "…"
