"""The gate in front of every route: who calls, how much, how it is counted, and the headers every answer carries.

One plain ASGI layer instead of one for each concern. Posts of events are answered right here, past the framework's routing and
parameter handling, which would cost more than decoding a small post does; their routes exist for the interface description.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossrank.api import errors
from crossrank.api.access import keep_slashes, need_of, refuse_foreign_names, refuse_other_jobs, route_of
from crossrank.api.reading import announced_bytes, read_body
from crossrank.api.rooms import Rooms
from crossrank.auth.guard import Caller

Door = Callable[[Request, Rooms, Caller], Awaitable[Response]]
_NOTHING: Final = b"default-src 'none'; frame-ancestors 'none'"
# The interactive description loads its scripts from where FastAPI says; it has no data and no rights.
_DOCS: Final = b"default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; style-src 'unsafe-inline' https://cdn.jsdelivr.net; img-src data: https:; connect-src 'self'; frame-ancestors 'none'"
_POLICY: Final = b"content-security-policy"
_DOCS_PATHS: Final = frozenset({"/docs", "/redoc"})
_SAFE_HEADERS: Final = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]


class Gate:
    """ASGI middleware around the routes."""

    def __init__(
        self, app: ASGIApp, rooms: Rooms, routes: Sequence[BaseRoute], doors: Mapping[str, Door], *, only_local_names: bool
    ) -> None:
        """doors: answers of POST by exact path. only_local_names: without tokens, refuse requests meant for another host."""
        self._app, self._rooms, self._routes, self._doors = app, rooms, routes, doors
        self._only_local_names = only_local_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request, whatever happens."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send, self._rooms)
        try:
            await self._answer(scope, receive, answer)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception as fault:
            if answer.started:
                raise
            await errors.answer_fault(Request(scope), fault)(scope, receive, answer)

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        request = Request(scope, receive)
        if self._only_local_names and not self._rooms.guard.uses_tokens:
            refuse_foreign_names(request.headers.get("host", ""))
        keep_slashes(scope)
        door = self._doors.get(scope["path"]) if scope["method"] == "POST" else None
        found = (scope["path"], None) if door else route_of(scope, self._routes)
        if found is None:  # no such address or method: says so without asking who calls
            await self._app(scope, receive, answer)
            return
        pattern, job = found
        answer.route = pattern
        caller = self._rooms.guard.admit(request.headers.get("authorization", ""), need_of(scope["method"], pattern))
        refuse_other_jobs(caller, pattern, job)
        scope["crossrank.caller"] = caller
        if door is not None:
            response = await door(request, self._rooms, caller)
            await response(scope, receive, answer)
        elif scope["method"] == "POST":
            with self._rooms.inflight.open(announced_bytes(request)) as hold:
                body = await read_body(request, self._rooms, hold)
                await self._app(scope, _again(body, receive), answer)
        else:
            await self._app(scope, receive, answer)


class _Answer:
    """The sending side of one request: adds the headers of every answer and counts it. The label is a pattern, never a path sent."""

    def __init__(self, scope: Scope, send: Send, rooms: Rooms) -> None:
        self._scope, self._send, self._rooms = scope, send, rooms
        self.route = "other"
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = [*message.get("headers", ()), *_SAFE_HEADERS]
            if all(name.lower() != _POLICY for name, _ in headers):  # the page brings its own
                headers.append((_POLICY, _DOCS if self._scope["path"] in _DOCS_PATHS else _NOTHING))
            message["headers"] = headers
            self._rooms.counters.add("requests", route=self.route, status=str(message["status"]))
        await self._send(message)


def _again(body: bytes, receive: Receive) -> Receive:
    """A receiving side that gives a body that was read already."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
