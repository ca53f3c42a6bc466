"""Reads a request body within bounds: bytes, time and growth, counted while it comes in (a chunked body announces nothing).

A compressed bomb is recognised by its first 128 KiB: when its first 16 KiB grow more than any events do, what has arrived is
measured in a thread of its own before more is read. So a body that stands for gigabytes is never held, neither as sent nor in
clear, and ordinary bodies pay a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from crossrank.api.inflight import Hold
from crossrank.api.rooms import Rooms
from crossrank.api.taking import MEASURED_BYTES, SUSPECT_BYTES, is_suspect, refuse_bomb
from crossrank.errors import BodyTooLarge, TooSlow


def announced_bytes(request: Request) -> int:
    """The Content-Length, 0 when there is none."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() and len(text) < 20 else 0


async def read_body(request: Request, rooms: Rooms, hold: Hold) -> bytes:
    """The body as sent. Raises BodyTooLarge, TooSlow, and Overloaded when it does not fit into what is in work already."""
    cap = rooms.limits.body_bytes
    if announced_bytes(request) > cap:
        raise BodyTooLarge(
            f"the body has {announced_bytes(request)} bytes; at most {cap} are taken in one request", limit_bytes=cap
        )
    try:
        async with asyncio.timeout(rooms.limits.body_read_ns / 1e9):
            return await _read(request, rooms, hold, cap)
    except TimeoutError as fault:
        raise TooSlow("the body did not arrive in time") from fault


async def _read(request: Request, rooms: Rooms, hold: Hold, cap: int) -> bytes:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    to_check = [] if encoding in ("", "identity") else [SUSPECT_BYTES, MEASURED_BYTES]
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > cap:
            raise BodyTooLarge(f"the body has more than {cap} bytes, the most taken in one request", limit_bytes=cap)
        hold.grow(len(part))
        parts.append(part)
        if to_check and size >= to_check[0]:
            await _check_growth(b"".join(parts), encoding, rooms, to_check)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _check_growth(start: bytes, encoding: str, rooms: Rooms, to_check: list[int]) -> None:
    """Takes the checks that are due out of `to_check`; the second is made only for suspects."""
    loop = asyncio.get_running_loop()
    if to_check[0] == SUSPECT_BYTES:
        del to_check[0]
        if not await loop.run_in_executor(None, is_suspect, start[:SUSPECT_BYTES], encoding, rooms.limits):
            to_check.clear()
    if to_check and len(start) >= to_check[0]:
        to_check.clear()
        await loop.run_in_executor(rooms.suspects, refuse_bomb, start, encoding, rooms.limits.body_bytes)
