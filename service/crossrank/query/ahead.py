"""Reads ahead: the next piece is made in a thread of its own while the last one is used, so that both cores work on one stream.

At most one finished piece waits, so memory grows by one piece. A fault while a piece is made is raised where it would be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")
_END: Final = object()


def ahead(pieces: Iterator[T]) -> Iterator[T]:
    """The same pieces in the same order."""
    with ThreadPoolExecutor(1, thread_name_prefix="crossrank-ahead") as worker:
        coming = worker.submit(next, pieces, _END)
        while (piece := coming.result()) is not _END:
            coming = worker.submit(next, pieces, _END)
            yield piece  # type: ignore[misc]  # only the end is no T
