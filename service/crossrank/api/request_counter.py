"""Counts requests by route and status. Plain ASGI: it sees each message once and never touches a body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossrank.counters import Counters


class RequestCounter:
    """ASGI middleware; the label is the route's pattern, never the path a client chose."""

    def __init__(self, app: ASGIApp, counters: Counters) -> None:
        self._app, self._counters = app, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes everything on and counts the start of each response."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "other")
                self._counters.add("requests", route=route, status=str(message["status"]))
            await send(message)

        await self._app(scope, receive, counted if scope["type"] == "http" else send)
