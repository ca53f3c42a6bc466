"""Connections that never finish a request must not cost others anything: slow-loris and idle clients.

A connection may wait 60 s for the rest of a request's headers (uvicorn itself times only the pause between requests), and their
number is bounded below the process's limit of open files. When a new one comes and all places are taken, the one that has waited
longest without a request in work gives way; a client with a request in work is never cut off, and a keep-alive client that was
only waiting connects again.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_S: Final = 60.0
WAITING_BYTES: Final = 512 << 10  # of a body, not yet taken by the application; asyncio reads 256 KiB at once


class Waiting:
    """The connections without a request in work, longest first."""

    def __init__(self, most: int) -> None:
        """most: connections held at once, waiting or not."""
        self.most = most
        self.connections: dict[GuardedConnection, None] = {}  # in order of insertion

    def make_room(self, held: int) -> bool:
        """Closes the connection that has waited longest if all places are taken; false when there is none to close."""
        if held <= self.most:
            return True
        longest = next(iter(self.connections), None)
        if longest is None:
            return False
        longest.give_up()
        return True


class GuardedConnection(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 connection with a deadline for headers and a place among a bounded number."""

    def __init__(self, *args: Any, waiting: Waiting, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting = waiting
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a place, or none when everybody is busy."""
        super().connection_made(transport)
        if not self._waiting.make_room(len(self.connections)):
            transport.abort()
            return
        self._wait()
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives the place free."""
        self._work()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Starts the clock for a request whose headers are not complete yet."""
        super().data_received(data)
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._deadline is None and self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._expect_headers()

    def on_headers_complete(self) -> None:
        """A request is in work."""
        self._work()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Holds a piece of the body for the application as it came, without copying it; reads on while little waits."""
        cycle = self.cycle
        if cycle.response_complete or self.parser.should_upgrade():
            super().on_body(body)
            return
        cycle.body = bytes(cycle.body) + body if cycle.body else body  # type: ignore[assignment]  # it is only measured and made bytes
        if len(cycle.body) > WAITING_BYTES:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Waits for the next one."""
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            self._wait()

    def give_up(self) -> None:
        """Closes at once."""
        self._work()
        if not self.transport.is_closing():
            self.transport.abort()

    def _wait(self) -> None:
        self._waiting.connections[self] = None

    def _work(self) -> None:
        self._waiting.connections.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(HEADERS_S, self.give_up)
