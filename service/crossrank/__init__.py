"""crossrank: a distributed trace collector and cross-rank event reconstruction service for distributed training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossrank.notebook.client import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`crossrank.Client`, loaded when it is first asked for: most programs that import crossrank never do."""
    if name == "Client":
        from crossrank.notebook.client import Client  # noqa: PLC0415

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
