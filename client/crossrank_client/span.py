"""One span while it is open, and the record of it once it is closed: the same object, so that closing one costs an append.

A thread has a Lane. The lane knows the innermost open span (`top`), each span knows the one around it: that chain is the stack of
open spans, and gives parents without a search. Nothing here takes a lock: a lane is touched by its own thread only,
and `deque.append` is one step for the interpreter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from crossrank_client.clock import mono_ns

if TYPE_CHECKING:
    from crossrank_client.client import Client

_GONE = object()
_ONCE: list[Span] = []  # never filled: tells a span that was entered from one that was not
Called = TypeVar("Called", bound=Callable[..., Any])


class Lane:
    """A thread as the service sees it: a name, on which spans are ordered, and the innermost open span."""

    __slots__ = ("__weakref__", "name", "thread", "top")

    def __init__(self, name: str, thread: int) -> None:
        self.name, self.thread = name, thread
        self.top: Span | None = None


class Span:
    """A span; a context manager, and a decorator that makes a span of every call. Times are monotonic nanoseconds.

    fields: columns of the event (`group`, `seq`, `op`, `peer`, `bytes`, …); everything else becomes an attribute. A span belongs to
    the active client (see `activate`) unless a client made it; without one it does nothing.
    """

    __slots__ = ("_again", "_client", "end_ns", "fields", "id", "kind", "lane", "name", "ordinal", "parent", "start_ns", "step")

    start_ns: int  # monotonic
    lane: Lane
    parent: Span | None
    step: int | None
    ordinal: int  # of its closing: what is missing among them fell out of the ring

    def __init__(self, name: str, kind: str | None = None, **fields: Any) -> None:
        self.name = name
        self.kind = kind
        self.fields = fields
        self.end_ns: int | None = None
        self.id: int | None = None  # given by the thread that encodes it, to itself or as a parent
        self._again: list[Span] | None = None  # None before it is entered, then the spans of further times
        self._client = _active

    def __enter__(self) -> Span:
        client = self._client
        if client is None:
            return self
        if self._again is not None:
            return self._entered_again()
        self._again = _ONCE
        try:
            lane = client.threads.lane
        except AttributeError:
            lane = client.new_lane()
        self.lane = lane
        parent = lane.top
        while parent is not None and parent.end_ns is not None:  # not closed in the order of opening
            parent = parent.parent
        self.parent = parent
        self.step = client.current_step
        self.start_ns = mono_ns()
        lane.top = self  # last: from here on the background thread may look at it
        return self

    def __exit__(self, kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None) -> None:
        client = self._client
        if client is None:
            return
        if self._again:
            self._again.pop().__exit__(kind, _fault, _trace)
            return
        self.end_ns = mono_ns()
        self.lane.top = self.parent
        if kind is not None:
            self.fields["error"] = kind.__name__
        self.ordinal = client.next_ordinal()
        client.append(self)

    def _entered_again(self) -> Span:
        """One object entered several times, one after the other or one in the other, is a span each time."""
        client = self._client
        if self._again is _ONCE:
            self._again = []
        another = Span(self.name, self.kind, **self.fields)
        if client is not None:
            another.by(client)
        assert self._again is not None
        self._again.append(another)
        return another.__enter__()

    def __call__(self, called: Called) -> Called:
        """`called` with a span around each call, by the client that is active then."""
        made_by, name, kind, fields = self._client, self.name, self.kind, self.fields

        @functools.wraps(called)
        def spanned(*args: Any, **kwargs: Any) -> Any:
            span = Span(name, kind, **fields)
            if made_by is not None and made_by is not _active:
                span.by(made_by)
            with span:
                return called(*args, **kwargs)

        return spanned  # type: ignore[return-value]

    def by(self, client: Client) -> Span:
        """Makes it a span of this client."""
        self._client = client
        return self

    def set(self, **fields: Any) -> None:
        """Adds columns or attributes that are known only now."""
        self.fields.update(fields)

    def end(self, at_ns: int | None = None) -> None:
        """Closes a span that `begin` opened, from any thread; a second time does nothing."""
        client = self._client
        if client is None or client.begun.pop(self, _GONE) is _GONE:  # one step, so that of two threads one ends it
            return
        self.end_ns = mono_ns() if at_ns is None else at_ns
        self.ordinal = client.next_ordinal()
        client.append(self)


class StepSpan(Span):
    """The span of an optimizer step. Open from the moment it is made; ends with its `with`, else when the next step begins."""

    __slots__ = ("managed",)

    def __init__(self, client: Client | None, step: int | None, **fields: Any) -> None:
        super().__init__("step", "step", **fields)
        self.managed = False
        self._client = client
        if client is not None:
            client.current_step = step
            super().__enter__()

    def __enter__(self) -> Span:
        self.managed = True
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        if self._client is not None and self.end_ns is None:
            super().__exit__(kind, fault, trace)
            self._client.step_ended(self)


_active: Client | None = None


def activate(client: Client | None) -> None:
    """Makes `client` the one that spans belong to from now on."""
    global _active  # noqa: PLW0603 -- one client a process
    _active = client


def active() -> Client | None:
    """The client of this process."""
    return _active
