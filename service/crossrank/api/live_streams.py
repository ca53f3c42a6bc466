"""Streams of server-sent events: how many there may be, when they speak, and that they end when the service stops.

A stream looks every TICK_S whether what it tells about has changed; two looks cost less than one answer. Every HEARTBEAT_TICKS without
news a comment line keeps proxies from closing the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from crossrank.errors import Overloaded

TICK_S: Final = 0.5
HEARTBEAT_TICKS: Final = 20


@dataclass(frozen=True, slots=True)
class News:
    """What is told, and what it is recognised by: the same key means that nothing has changed."""

    key: Hashable
    event: str
    data: dict[str, Any]


class LiveStreams:
    """The open streams of a service. Used from the event loop only."""

    def __init__(self, most: int) -> None:
        self._most, self._open, self._closing = most, 0, False

    def close(self) -> None:
        """Ends all streams within a tick and takes no more."""
        self._closing = True

    def enter(self) -> None:
        """Takes a place. Raises Overloaded when there is none."""
        if self._open >= self._most or self._closing:
            raise Overloaded(f"{self._most} streams are open already; come again", budget="live_streams")
        self._open += 1

    def leave(self) -> None:
        """Gives a place back."""
        self._open -= 1

    async def follow(self, look: Callable[[], News | None], is_gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
        """The stream of a place that was taken. look: what there is now, None ends the stream."""
        told: Hashable = None
        number, quiet = 0, 0
        while not self._closing and not await is_gone():
            news = await asyncio.to_thread(look)
            if news is None:
                break
            quiet += 1
            if news.key != told:
                told, number, quiet = news.key, number + 1, 0
                yield _message(number, news)
            elif quiet >= HEARTBEAT_TICKS:
                quiet = 0
                yield b": nothing new\n\n"
            await asyncio.sleep(TICK_S)


class LiveReply(StreamingResponse):
    """A stream that gives its place back however it ends, also when its first byte could not be sent."""

    def __init__(self, streams: LiveStreams, look: Callable[[], News | None], is_gone: Callable[[], Awaitable[bool]]) -> None:
        """Takes a place. Raises Overloaded."""
        streams.enter()
        self._streams = streams
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(streams.follow(look, is_gone), media_type="text/event-stream", headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the client goes, the job is deleted or the service stops."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave()


def _message(number: int, news: News) -> bytes:
    """One event; JSON has no line breaks, so the data is one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, news.event.encode(), msgspec.json.encode(news.data))
