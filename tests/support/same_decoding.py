"""Two decoders of one format, held against each other on one body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.limits import Limits
from crossrank.model.decoded import RAW_SCHEMA, Decoded

Decode = Callable[[bytes, str | None, Limits], Decoded]


def outcome(decode: Decode, body: bytes, job: str | None, limits: Limits) -> Any:
    """Everything a decoder says, in a form that can be compared; the name of the fault where it refuses the body."""
    try:
        found = decode(body, job, limits)
    except (UndecodableBody, BodyTooLarge) as fault:
        return type(fault).__name__
    rows = found.rows.cast(RAW_SCHEMA).combine_chunks()
    rows.validate(full=True)
    return rows, found.index.tolist(), sorted(found.rejections, key=lambda r: r.index), sorted(found.warnings)


def same(fast: Decode, plain: Decode, body: bytes, job: str | None, limits: Limits) -> Any:
    """Asserts that both say the same, and says it."""
    ours, theirs = (outcome(decode, body, job, limits) for decode in (fast, plain))
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs
        return ours
    assert ours[1:] == theirs[1:]
    if not ours[0].equals(theirs[0]):
        for name in RAW_SCHEMA.names:
            assert ours[0].column(name).to_pylist() == theirs[0].column(name).to_pylist(), name
        raise AssertionError("tables differ in a way that values do not show")
    return ours
