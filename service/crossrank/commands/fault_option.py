"""The `--fault` option of `crossrank simulate`: `KIND:key=value,key=value` to one fault of the simulator.

The keys are the fields of the fault's class, durations without their `_ns` and with a unit instead: `extra=30ms` is
`extra_ns=30_000_000`. So a new fault of the simulator is one line here.
"""

from __future__ import annotations

import dataclasses
import re
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from crossrank.errors import BadParameter
from crossrank.simulate import faults
from crossrank.simulate.faults import Fault

KINDS: Final[dict[str, type[Fault]]] = {
    "slow": faults.SlowCompute,
    "loader": faults.SlowLoader,
    "link": faults.SlowLink,
    "pause": faults.GcPause,
    "hang": faults.Hang,
    "skip": faults.SkippedCollective,
    "size": faults.WrongSize,
    "missing": faults.MissingRank,
    "lost": faults.LostEvents,
}

_UNITS_NS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|µs|ms|s)")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")


def parse_fault(text: str) -> Fault:
    """The fault that `text` describes. Raises BadParameter that says which part is wrong and what it could be."""
    name, _, rest = text.partition(":")
    kind = KINDS.get(name.strip())
    if kind is None:
        raise BadParameter(f"--fault {text}: unknown kind {name!r}; one of {', '.join(KINDS)}", field="fault")
    hints = get_type_hints(kind)
    keys = {field.name.removesuffix("_ns"): field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = part.partition("=")
        field = keys.get(key.strip())
        if not equals or field is None:
            raise BadParameter(f"--fault {text}: {part!r} is not one of {', '.join(f'{k}=…' for k in keys)}", field="fault")
        values[field.name] = _value(text, field.name, hints[field.name], value.strip())
    missing = [k for k, f in keys.items() if f.default is dataclasses.MISSING and f.name not in values]
    if missing:
        raise BadParameter(f"--fault {text}: needs {', '.join(f'{k}=…' for k in missing)}", field="fault")
    return kind(**values)


def _value(text: str, name: str, hint: Any, value: str) -> object:
    wanted = "a number"
    try:
        if name == "steps":
            wanted = "a step or a range of steps such as 10-20"
            return _steps(value)
        if name.endswith("_ns"):
            wanted = "a duration such as 30ms"
            return _duration_ns(value)
        plain = _without_none(hint)
        if get_origin(plain) is Literal:
            wanted = f"one of {', '.join(get_args(plain))}"
            return get_args(plain)[get_args(plain).index(value)]
        return plain(value)
    except (ValueError, TypeError):
        raise BadParameter(f"--fault {text}: {name.removesuffix('_ns')}={value} should be {wanted}", field="fault") from None


def _without_none(hint: Any) -> Any:
    """`int` of `int | None`."""
    if get_origin(hint) in {Union, UnionType}:
        return next(arg for arg in get_args(hint) if arg is not type(None))
    return hint


def _steps(value: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(value)
    if found is None:
        raise ValueError(value)
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise ValueError(value)
    return first, last


def _duration_ns(value: str) -> int:
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError(value)
    return round(float(found[1]) * _UNITS_NS[found[2]])
