"""What every benchmark leaves behind: a table on the screen and benchmarks/results/NAME.json.

The file is a list of {what, value, unit, demand, holds}. `demand` is the claim in words ("<= 2.0") or null where none is made;
`holds` says whether the value meets it, null without a demand. Docs quote figures from these files only.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure."""

    what: str
    value: float
    unit: str
    demand: str | None = None
    holds: bool | None = None


class Results:
    """The figures of one benchmark, in the order they were added."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.figures: list[Figure] = []

    def add(self, what: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None) -> None:
        """Adds a figure, with a demand if one is given."""
        demand, holds = None, None
        if at_most is not None:
            demand, holds = f"<= {at_most:g}", value <= at_most
        elif at_least is not None:
            demand, holds = f">= {at_least:g}", value >= at_least
        self.figures.append(Figure(what, _rounded(value), unit, demand, holds))

    def finish(self) -> bool:
        """Prints the table, writes the file; true when every demand holds."""
        table = Table(title=f"{self.name} ({platform.machine()}, Python {platform.python_version()})", title_justify="left")
        for column in ("what", "value", "unit", "demand", "holds"):
            table.add_column(column, justify="right" if column == "value" else "left")
        for f in self.figures:
            holds = "" if f.holds is None else "[green]yes" if f.holds else "[red]NO"
            table.add_row(f.what, f"{f.value:,g}", f.unit, f.demand or "", holds)
        Console(width=140).print(table)
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps([asdict(f) for f in self.figures], indent=1) + "\n"
        (RESULTS / f"{self.name}.json").write_text(text)
        return all(f.holds is not False for f in self.figures)


def _rounded(value: float) -> float:
    """Four significant digits: more would pretend a precision that no second run shows."""
    return float(f"{value:.4g}")
