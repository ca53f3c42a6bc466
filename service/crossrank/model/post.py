"""One request as it came in, and what was admitted of it: the currency between ingest, the WAL and the store."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Post:
    """A request as received. The WAL keeps exactly this, so that a replay decodes the same bytes again.

    route: "events" or "traces". content_type and content_encoding as sent ("" when absent). job: the X-Crossrank-Job header.
    """

    route: str
    content_type: str
    content_encoding: str
    job: str | None
    received_ns: int
    body: bytes


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

    `warnings` are for the sender ("3 names were cut to 1024 bytes"); nothing was lost by them.
    """

    events: pa.Table
    rejections: tuple[Rejection, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the store did with admitted events, known once they are durable. accepted + duplicate = admitted rows."""

    accepted: int
    duplicate: int
    conflict: int
