"""The way of a post from bytes to the log, the same for HTTP and gRPC: decompress, decode, keep what the sender may post, append.

Everything here runs in a worker thread, so that the event loop never waits for a body. The caller of `take` waits for the future;
only then are the events durable and the request may be answered with success.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.api.accept_any import IMPORT_ROUTE, accept_any
from crossrank.api.inflight import Hold
from crossrank.api.rooms import Rooms
from crossrank.auth.guard import Caller
from crossrank.errors import BodyTooLarge
from crossrank.ingest.accept import ARROW_TYPE, JSON_TYPE, NDJSON_TYPES, PROTOBUF_TYPE, Decoder, media_type
from crossrank.ingest.body import decompress, grows_beyond
from crossrank.limits import Limits
from crossrank.model.post import Admitted, Post, Receipt, Rejection

OTHER_JOB: Final = "other_job"
SUSPECT_BYTES: Final = 16 << 10  # of a body: enough to see how much it grows
MEASURED_BYTES: Final = 128 << 10  # of a suspect: enough for any bomb to pass the limit
_ORDINARY_RATIO: Final = 16
_ORDINARY_BYTES: Final = 16 << 20
_KNOWN_TYPES: Final = {JSON_TYPE, PROTOBUF_TYPE, ARROW_TYPE, *NDJSON_TYPES}


def take(rooms: Rooms, post: Post, hold: Hold, caller: Caller) -> tuple[Admitted, Future[Receipt]]:
    """Decodes a post and hands it to the store.

    Raises UnsupportedType, UndecodableBody, BodyTooLarge, Overloaded, StoreUnavailable; nothing of the request is kept then.
    """
    admitted = _decode(post, rooms.limits, rooms.decoder, hold)
    hold.grow(admitted.events.nbytes, must_fit=False)
    rooms.guard.charge(caller, size_bytes=len(post.body), events=admitted.events.num_rows + len(admitted.rejections))
    stored = rooms.store.append(post, admitted)
    rooms.counters.add("body_bytes", len(post.body))
    for reason, count in Counter(r.reason for r in admitted.rejections).items():
        rooms.counters.add("events_rejected", count, reason=reason)
    return admitted, stored


def admit_post(post: Post, limits: Limits, decoder: Decoder = "compiled") -> Admitted:
    """What a post holds that its sender may post: pure, the same at receipt and when the log is replayed. Raises as `accept_any`."""
    return only_own(accept_any(post, limits, decoder), post.only_job)


def only_own(admitted: Admitted, only_job: str | None) -> Admitted:
    """Leaves out events of other jobs than the sender's, each with a rejection.

    No rejection may name another job either: it would be counted, and seen, there.
    """
    if only_job is None:
        return admitted
    rejections = [replace(r, job=only_job) if r.job not in (None, only_job) else r for r in admitted.rejections]
    own = pc.equal(admitted.events.column("job").cast(pa.string()), only_job).to_numpy()
    if not own.all():
        taken = {r.index for r in rejections}
        places = np.array([i for i in range(len(own) + len(taken)) if i not in taken])  # rows are in request order
        rejections += [Rejection(int(i), OTHER_JOB, only_job, None, f"the token is for {only_job!r}") for i in places[~own]]
        rejections.sort(key=lambda r: r.index)
    return Admitted(admitted.events.filter(pa.array(own)), tuple(rejections), admitted.warnings, admitted.topology)


def _decode(post: Post, limits: Limits, decoder: Decoder, hold: Hold) -> Admitted:
    plain = post.content_encoding.strip().lower() in ("", "identity")
    if plain or post.route == IMPORT_ROUTE or media_type(post.content_type) not in _KNOWN_TYPES:
        return admit_post(post, limits, decoder)
    clear = _clear(post.body, post.content_encoding, limits.body_bytes)
    hold.grow(len(clear))
    try:
        return admit_post(replace(post, body=clear, content_encoding=""), limits, decoder)
    finally:
        hold.grow(-len(clear))


def _clear(body: bytes, encoding: str, cap: int) -> bytes:
    """The body decompressed. One that grows unusually much is measured before it is kept."""
    usual = min(cap, _ORDINARY_RATIO * len(body) + (1 << 20), _ORDINARY_BYTES)
    try:
        return decompress(body, encoding, usual)
    except BodyTooLarge:
        if usual == cap:
            raise
    refuse_bomb(body, encoding, cap)
    return decompress(body, encoding, cap)


def is_suspect(start: bytes, encoding: str, limits: Limits) -> bool:
    """Whether the start of a compressed body grows far more than events do."""
    return grows_beyond(start, encoding, limits.suspect_ratio * len(start))


def refuse_bomb(body: bytes, encoding: str, cap: int) -> None:
    """Raises BodyTooLarge when a body, or the start of one, has more bytes in clear than the cap; keeps nothing of them."""
    if grows_beyond(body, encoding, cap):
        raise BodyTooLarge(f"the body is larger than {cap} bytes after decompression", limit_bytes=cap)
