"""How answers are written: JSON by msgspec, which is fast and takes text that is JSON already as it is.

Answers of some size are sent as gzip to who takes it. Only whole JSON answers pass here: streams of news would be held back by a
compressor, and exports are compressed in themselves.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any, Final

import msgspec
from isal import igzip
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SQUEEZED_BYTES: Final = 8192  # from this size on; below, the bytes saved are fewer than a packet
_squeeze = partial(igzip.compress, compresslevel=1, mtime=0)  # 0.2 GB/s; higher levels save 1 % more of such answers


class JsonReply(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return msgspec.json.encode(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it, compressed where that helps and the client takes it."""
        if len(self.body) >= SQUEEZED_BYTES:
            self.headers.add_vary_header("Accept-Encoding")
            if takes_gzip(Headers(scope=scope).get("accept-encoding", "")):
                self.body = await asyncio.to_thread(_squeeze, self.body)
                self.headers["Content-Encoding"] = "gzip"
                self.headers["Content-Length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def takes_gzip(accept_encoding: str) -> bool:
    """Whether a client that sends this header reads gzip (RFC 9110: named, or by `*`, and not with a weight of zero)."""
    weights: dict[str, str] = {}
    for entry in accept_encoding.lower().split(","):
        name, _, parameters = entry.partition(";")
        weights[name.strip()] = parameters.replace(" ", "")
    weight = weights.get("gzip", weights.get("*", "q=0"))
    return re.fullmatch(r"q=0(\.0*)?", weight) is None
