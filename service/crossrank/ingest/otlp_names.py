"""Which OpenTelemetry attribute becomes which column.

For every column, from the surest source to the weakest: the attribute `crossrank.<column>` or `<column>` of the span, the same
of its resource, then names that other conventions use for the same thing. An attribute that goes to a column under the
column's own name lives there; one under another convention's name is copied, and stays findable under its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Final

from crossrank.ingest.known_names import FIT, PREFIX

# Other conventions: attribute -> column. OpenTelemetry's semantic conventions, torch's names and the `dist.*` family.
ALIASES: Final[dict[str, str]] = {
    "host.name": "host",
    "dist.rank": "rank",
    "distributed.rank": "rank",
    "process.rank": "rank",
    "global_rank": "rank",
    "dist.attempt": "attempt",
    "torchelastic.restart_count": "attempt",
    "dist.category": "kind",
    "dist.step": "step",
    "global_step": "step",
    "dist.op": "op",
    "dist.pg.name": "group",
    "dist.pg.ranks": "group_ranks",
    "dist.seq": "seq",
    "dist.bytes": "bytes",
    "dist.dtype": "dtype",
    "dist.peer": "peer",
}
_INSTANCE_RANK: Final = re.compile(r"(?:.*[^0-9a-zA-Z])?rank[-_.:]?(\d{1,9})", re.IGNORECASE)
OWN, BARE, ALIAS = 0, 1, 2  # how sure a name is; the lower the surer

NAMES: Final[dict[str, tuple[str, int]]] = (
    {name: (column, ALIAS) for name, column in ALIASES.items()}
    | {column: (column, BARE) for column in FIT}
    | {PREFIX + column: (column, OWN) for column in FIT}
    | {PREFIX + "name": ("name", OWN)}  # a bare `name` attribute is no better than the span's own name
)
STRICT: Final = frozenset({name for name, (_, sureness) in NAMES.items() if sureness == OWN} | {"rank"})
"""Names that mean a column and nothing else: a value that does not fit is worth a word to the sender."""


@dataclass(frozen=True, slots=True)
class Found:
    """Columns found among attributes, the attributes that are left, and names meant as columns whose values do not fit."""

    columns: dict[str, Any]
    rest: dict[str, Any]
    unfit: tuple[str, ...]

    @property
    def bad_rank(self) -> bool:
        """A rank was given, but it cannot be one."""
        return PREFIX + "rank" in self.unfit or "rank" in self.unfit


def find_columns(attrs: dict[str, Any]) -> Found:
    """Splits attributes into columns and the rest."""
    columns: dict[str, Any] = {}
    sources: dict[str, tuple[int, str]] = {}
    unfit: list[str] = []
    for key, value in attrs.items():
        hit = NAMES.get(key)
        if hit is None:
            continue
        column, sureness = hit
        fitted = _fit(column, sureness, value)
        if fitted is None:
            if key in STRICT:
                unfit.append(key)
        elif column not in sources or (sureness, key) < sources[column]:
            columns[column], sources[column] = fitted, (sureness, key)
    moved = {key for sureness, key in sources.values() if sureness != ALIAS}
    rest = {key: value for key, value in attrs.items() if key not in moved} if moved else attrs
    return Found(columns, rest, tuple(unfit))


def _fit(column: str, sureness: int, value: Any) -> Any:
    if sureness == OWN and column in ("name", "kind"):
        return (
            value if isinstance(value, str) and value else None
        )  # an unknown kind becomes `other` and is kept, as in every format
    return FIT[column](value)


def resource_columns(attrs: dict[str, Any]) -> Found:
    """Columns that a resource gives to all its spans; the service name is not among them, see `service_job`."""
    found = find_columns(attrs)
    columns = {column: value for column, value in found.columns.items() if column not in ("name", "kind")}
    instance = attrs.get("service.instance.id")
    if "rank" not in columns and isinstance(instance, str) and (m := _INSTANCE_RANK.fullmatch(instance)):
        columns["rank"] = int(m.group(1))
    return replace(found, columns=columns)


def service_job(attrs: dict[str, Any]) -> str | None:
    """The job's name when nothing else names it: `service.name`."""
    name = attrs.get("service.name")
    return name if isinstance(name, str) and name else None


def thread_lane(attrs: dict[str, Any]) -> str | None:
    """The lane of a span by its thread, as `tid:N` (semantic convention `thread.id`), else the thread's name."""
    thread = attrs.get("thread.id")
    if type(thread) is int or (isinstance(thread, str) and thread):
        return f"tid:{thread}"
    name = attrs.get("thread.name")
    return name if isinstance(name, str) and name else None
