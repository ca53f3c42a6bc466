"""One thing that `crossrank doctor` looked at, and what to do when it is not well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Check:
    """area: setup, clocks or data. job: whose, None for the set-up. do: what to do or to collect next, "" when well."""

    area: Literal["setup", "clocks", "data"]
    what: str
    state: State
    found: str
    do: str = ""
    job: str | None = None
