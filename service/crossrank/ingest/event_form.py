"""The JSON event as a typed structure, for both forms: the full one and the seed one (halves of a pair).

The structure is built from the event columns themselves, so that a new column is a new JSON field. msgspec checks types and
int64 ranges in C while parsing; integers written as floats are refused, because a float64 cannot hold epoch nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from crossrank.ingest import reasons
from crossrank.ingest.known_names import FIT, PREFIX
from crossrank.model.columns import EVENT_COLUMNS

INT64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_JSON_TYPES: Final[Mapping[pa.DataType, Any]] = {
    pa.int32(): INT64,  # the narrower range is checked with the other bounds, by `admit`
    pa.int64(): INT64,
    pa.bool_(): bool,
    pa.float64(): float,
    pa.string(): dict[str, Any],
    pa.list_(pa.int32()): list[INT64],
    pa.list_(pa.binary(8)): list[str],
}

COLUMNS: Final = tuple(c.name for c in EVENT_COLUMNS if c.sent)
SEED_FIELDS: Final = ("event", "timestamp_ns")
SEED_JOB: Final = "default"

EventForm: Final[Any] = msgspec.defstruct(
    "EventForm",
    [(c.name, _JSON_TYPES.get(c.type, str) | None, None) for c in EVENT_COLUMNS if c.sent]
    + [(name, Any, None) for name in SEED_FIELDS],
    gc=False,
    forbid_unknown_fields=True,
)
_KNOWN: Final = frozenset(COLUMNS + SEED_FIELDS)


class Refused(Exception):
    """An event that cannot be read; `reason` is one of the declared reasons."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


def from_mapping(found: Mapping[str, Any]) -> Any:
    """An EventForm from a parsed object with any keys; those that are not columns become attributes.

    An attribute of the same name that was sent in `attrs` stands. Raises msgspec.ValidationError.
    """
    form = msgspec.convert({key: value for key, value in found.items() if key in _KNOWN}, EventForm)
    extra = {key: value for key, value in found.items() if key not in _KNOWN}
    if extra:
        form.attrs = extra | (form.attrs or {})
    return form


def settle(form: Any, job: str | None) -> None:
    """Turns an event that has a seed field into the full form, in place. `job`: the request's. Raises Refused.

    The seed form has no field for a job: without one anywhere its events belong to the job `default`.
    """
    if form.start_ns is None and form.end_ns is None:
        _settle_seed(form)
        if form.job is None:
            form.job = job or SEED_JOB
        return
    sent = {name: getattr(form, name) for name in SEED_FIELDS if getattr(form, name) is not None}
    form.attrs = sent | (form.attrs or {})  # a full event may well have an attribute of that name


def _settle_seed(form: Any) -> None:
    """`forward_start` at t -> open span `forward` from t; `forward_end` -> its other half; `epoch` -> a mark of no length."""
    at = form.timestamp_ns
    if at is None:
        raise Refused(reasons.MISSING_START, "timestamp_ns")
    if type(at) is not int:
        raise Refused(reasons.BAD_TYPE, f"timestamp_ns: expected an integer, got {type(at).__name__}")
    if not 0 <= at < 2**63:
        raise Refused(reasons.TIME_RANGE, "timestamp_ns")
    if not isinstance(form.event, str) or not form.event:
        raise Refused(reasons.MISSING_EVENT if form.event in (None, "") else reasons.BAD_TYPE, "event")
    stem, _, half = form.event.rpartition("_")
    if not stem or half not in ("start", "end"):
        stem, half = form.event, "mark"
    if form.name is None:
        form.name = stem
    if half != "end":
        form.start_ns = at
    if half != "start":
        form.end_ns = at
    if half == "mark" and form.kind is None:
        form.kind = "mark"
    _lift_attrs(form)


def _lift_attrs(form: Any) -> None:
    """Columns that came as attributes, as the seed form has no other place for them."""
    if not form.attrs:
        return
    rest = {}
    for key, value in form.attrs.items():
        column = key.removeprefix(PREFIX)
        fitted = FIT[column](value) if column in FIT and getattr(form, column) is None else None
        if fitted is None:
            rest[key] = value
        else:
            setattr(form, column, fitted)
    form.attrs = rest
