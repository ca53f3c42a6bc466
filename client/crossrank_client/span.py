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

Called = TypeVar("Called", bound=Callable[..., Any])


class Lane:
    """A thread as the service sees it: a name, on which spans are ordered, and the innermost open span."""

    __slots__ = ("__weakref__", "name", "thread", "top")

    def __init__(self, name: str, thread: int) -> None:
        self.name, self.thread = name, thread
        self.top: Span | None = None


class Span:
    """A span; a context manager, and a decorator that makes a span of every call. Times are monotonic nanoseconds.

    fields: columns of the event (`group`, `seq`, `op`, `peer`, `bytes`, …); everything else becomes an attribute.
    """

    __slots__ = ("_client", "end_ns", "fields", "id", "kind", "lane", "name", "ordinal", "parent", "start_ns", "step")

    def __init__(self, client: Client, name: str, kind: str | None = None, **fields: Any) -> None:
        self._client = client
        self.name = name
        self.kind = kind
        self.fields = fields
        self.end_ns: int | None = None

    def __enter__(self) -> Span:
        client = self._client
        try:
            lane = client.threads.lane
        except AttributeError:
            lane = client.new_lane()
        self.lane = lane
        self.parent = lane.top
        lane.top = self
        self.step = client.current_step
        self.id = client.next_id()
        self.start_ns = mono_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None) -> None:
        self.end_ns = mono_ns()
        if kind is not None:
            self.fields["error"] = kind.__name__
        self.lane.top = self.parent
        client = self._client
        self.ordinal = client.next_ordinal()
        client.append(self)

    def __call__(self, called: Called) -> Called:
        """`called` with a span around each call."""
        client, name, kind, fields = self._client, self.name, self.kind, self.fields

        @functools.wraps(called)
        def spanned(*args: Any, **kwargs: Any) -> Any:
            with Span(client, name, kind, **fields):
                return called(*args, **kwargs)

        return spanned  # type: ignore[return-value]

    def set(self, **fields: Any) -> None:
        """Adds columns or attributes that are known only now."""
        self.fields.update(fields)

    def end(self, at_ns: int | None = None) -> None:
        """Closes a span that `begin` opened, from any thread; a second time does nothing."""
        if self.end_ns is None:
            self.end_ns = mono_ns() if at_ns is None else at_ns
            client = self._client
            client.begun.pop(self.id, None)
            self.ordinal = client.next_ordinal()
            client.append(self)


class StepSpan(Span):
    """The span of an optimizer step. Open from the moment it is made; ends with its `with`, else when the next step begins."""

    __slots__ = ("managed",)

    def __init__(self, client: Client, step: int, **fields: Any) -> None:
        super().__init__(client, "step", "step", **fields)
        self.managed = False
        client.current_step = step
        super().__enter__()

    def __enter__(self) -> Span:
        self.managed = True
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        if self.end_ns is None:
            super().__exit__(kind, fault, trace)
            self._client.step_ended(self)


class NoSpan:
    """What `span` gives before `init` and after `shutdown`: takes everything, does nothing."""

    __slots__ = ()

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def __call__(self, called: Called) -> Called:
        """`called` itself."""
        return called

    def set(self, **fields: Any) -> None:
        """Does nothing."""

    def end(self, at_ns: int | None = None) -> None:
        """Does nothing."""


NO_SPAN = NoSpan()
