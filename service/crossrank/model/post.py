"""One request as it came in, and what was admitted of it: the currency between ingest, the WAL and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Post:
    """A request as received. The WAL keeps exactly this, so that a replay decodes the same bytes again.

    route: "events", "traces" or "import". content_type and content_encoding as sent ("" when absent). job: the X-Crossrank-Job
    header or, for an import, the parameter. parameters: what else the request said that decides how its body is read.
    only_job: the sender may post to this job only; kept in the log, so that a replay refuses the same events again.
    """

    route: str
    content_type: str
    content_encoding: str
    job: str | None
    received_ns: int
    body: bytes
    only_job: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejection:
    """One event that was not admitted: its place in the request, why, and whose it was when that much could be read."""

    index: int
    reason: str
    job: str | None = None
    rank: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The events of one Post that passed validation (EVENT_SCHEMA), and those that did not.

    `warnings` are for the sender ("3 names were cut to 1024 bytes"); nothing was lost by them. `topology`: what a recorded file says
    of the job's shape, as it would be posted.
    """

    events: pa.Table
    rejections: tuple[Rejection, ...] = ()
    warnings: tuple[str, ...] = ()
    topology: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the store did with admitted events, known once they are durable. accepted + duplicate = admitted rows."""

    accepted: int
    duplicate: int
    conflict: int
