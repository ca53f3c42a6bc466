"""The whole service in the test's own process, asked through its HTTP application without a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Self

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crossrank.app import build_api, close_rooms, open_rooms
from crossrank.limits import Limits
from crossrank.settings import Settings


def hang_up_on_streams(app: ASGIApp) -> ASGIApp:
    """The application as a client meets it that leaves an endless stream of events after its first part."""

    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        enough, is_stream, is_complete, is_heard = asyncio.Event(), False, False, False

        async def hear() -> Message:
            nonlocal is_heard
            if is_heard:
                await enough.wait()
                return {"type": "http.disconnect"}
            message = await receive()
            is_heard = not message.get("more_body", False)
            return message

        async def tell(message: Message) -> None:
            nonlocal is_stream, is_complete
            if message["type"] == "http.response.start":
                is_stream = any(value.startswith(b"text/event-stream") for _, value in message["headers"])
            elif is_stream and message.get("body"):
                enough.set()
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        await app(scope, hear, tell)
        if is_stream and not is_complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return asked


class InProcess:
    """One data folder, opened. Derivation runs when asked for, so tests decide when."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.rooms = open_rooms(Settings(data=folder), limits or Limits())
        self.api = build_api(self.rooms)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Any request."""

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(hang_up_on_streams(self.api)), base_url="http://test"
            ) as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def post(self, path: str, body: bytes, content_type: str, encoding: str = "", **params: Any) -> dict[str, Any]:
        """Posts a body that must be taken; the JSON answer ({} when it is not JSON)."""
        headers = {"Content-Type": content_type, **({"Content-Encoding": encoding} if encoding else {})}
        answer = self.request("POST", path, content=body, headers=headers, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json() if answer.headers["content-type"].startswith("application/json") else {}

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """The JSON answer of a GET that must succeed."""
        answer = self.request("GET", path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def derive(self, job: str) -> None:
        """Brings the job's answers up to date."""
        self.request("POST", f"/v1/jobs/{job}/derive", params={"wait": True}).raise_for_status()

    def close(self) -> None:
        """Closes the folder."""
        close_rooms(self.rooms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
