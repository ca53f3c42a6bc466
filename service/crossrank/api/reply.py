"""How answers are written: JSON by msgspec, which is fast and takes text that is JSON already as it is."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response


class JsonReply(Response):
    """A JSON answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body."""
        return msgspec.json.encode(content)
