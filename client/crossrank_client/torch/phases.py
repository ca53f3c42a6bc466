"""The phases of a training step as spans: data, forward, backward, optimizer, and the step itself.

    data        `next()` on the loader          forward     the outermost call of the model, before and after all its hooks
    optimizer   `optimizer.step()`              backward    `torch.autograd.backward`, which `loss.backward()` calls

A job that calls `crossrank_client.step(n)` itself keeps its steps. In one that does not, a step begins with the first phase after an
optimizer step and lasts until the next one begins, so that nothing between phases is lost. With gradient accumulation a step is
what one optimizer step closes.

Hooks only read the time. All are taken away again by `remove`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from crossrank_client.client import Client
    from crossrank_client.span import Span
    from crossrank_client.torch.calls import Calls


class Steps:
    """Steps of a job that does not number them itself. boundaries: called on the training thread when a step has begun."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._begin = client.step
        self.boundaries: list[Callable[[int | None], None]] = []
        self._automatic = client.current_step is None or client.steps_are_ours
        self._due = True
        client.step = self._begun  # type: ignore[method-assign]  # also for steps that the job numbers

    def remove(self) -> None:
        """Gives the client its own `step` back."""
        self._client.__dict__.pop("step", None)

    def _begun(self, number: int | None = None, **fields: Any) -> Any:
        self._automatic = self._client.steps_are_ours = False
        return self._next(number, **fields)

    def _next(self, number: int | None = None, **fields: Any) -> Any:
        span = self._begin(number, **fields)
        for called in list(self.boundaries):
            called(self._client.current_step)
        return span

    def phase_begins(self) -> None:
        """A phase is about to begin: with it the next step, if one is due."""
        if self._automatic and self._due:
            self._due = False
            self._client.steps_are_ours = True
            self._next()

    def optimizer_done(self) -> None:
        """What comes next belongs to the next step."""
        self._due = True


class Phases:
    """Records the phases of what it is given, until removed."""

    def __init__(self, client: Client, steps: Steps, calls: Calls | None) -> None:
        self._client, self._steps, self._calls = client, steps, calls
        self._undo: list[Callable[[], Any]] = []
        self._inside = threading.local()

    def watch_model(self, model: torch.nn.Module, name: str = "forward") -> None:
        """Forward passes of a module, whole as the caller sees them."""
        open_spans: list[Span] = []

        def before(*_: Any) -> None:
            span = self._opened(name, "compute")
            if span is not None:
                open_spans.append(span)

        def after(*_: Any) -> None:
            with contextlib.suppress(IndexError):  # a pass that began before, or that another thread has closed
                open_spans.pop().__exit__(None, None, None)

        first = model.register_forward_pre_hook(before, prepend=True)
        last = model.register_forward_hook(after, always_call=True)
        self._undo += [first.remove, last.remove]

    def watch_optimizer(self, optimizer: Any, *, ends_step: bool) -> None:
        """Calls of `step`. ends_step: one of them ends the training step."""
        optimizer = getattr(optimizer, "optimizer", optimizer)  # Accelerate and DeepSpeed wrap the one that has hooks
        open_spans: list[Span] = []

        def before(*_: Any) -> None:
            open_spans.clear()  # of a call that raised
            span = self._opened("optimizer", "compute")
            if span is not None:
                open_spans.append(span)

        def after(*_: Any) -> None:
            with contextlib.suppress(IndexError):
                open_spans.pop().__exit__(None, None, None)
            if ends_step:
                self._steps.optimizer_done()

        self._undo += [optimizer.register_step_pre_hook(before).remove, optimizer.register_step_post_hook(after).remove]

    def watch_backward(self) -> None:
        """Backward passes of the process, however they are started from Python."""
        original = torch.autograd.backward
        inside, calls = self._inside, self._calls

        def backward(*args: Any, **kwargs: Any) -> Any:
            if getattr(inside, "backward", False):  # activation checkpointing runs one inside the other
                return original(*args, **kwargs)
            span = self._opened("backward", "compute")
            if span is None:
                return original(*args, **kwargs)
            inside.backward = True
            if calls is not None:
                calls.backward_lane = span.lane.name
            try:
                return original(*args, **kwargs)
            finally:
                inside.backward = False
                if calls is not None:
                    calls.backward_lane = None
                    calls.sweep()  # DDP has waited for its buckets: they ended before the pass did
                span.__exit__(None, None, None)

        def restore() -> None:
            if torch.autograd.backward is backward:
                torch.autograd.backward = original

        torch.autograd.backward = backward
        self._undo.append(restore)

    def watch_loader(self, loader: Any) -> bool:
        """Times `next()` on every iterator of a loader, whose class is replaced by one derived from it. False where it cannot be."""
        kind = type(loader)
        try:
            derived = type(kind.__name__, (kind,), {"__iter__": lambda loader: _TimedIterator(kind.__iter__(loader), self), "__module__": kind.__module__})  # fmt: skip
            loader.__class__ = derived
        except (TypeError, AttributeError):  # a class of C, or one whose `__class__` is a property (Accelerate)
            return False

        def restore() -> None:
            if type(loader) is derived:
                loader.__class__ = kind

        self._undo.append(restore)
        return True

    def timed(self, batches: Iterable[Any]) -> Iterator[Any]:
        """An iterator over any iterable whose `next()` is a data phase."""
        return _TimedIterator(iter(batches), self)

    def remove(self) -> None:
        """Takes every hook away."""
        while self._undo:
            self._undo.pop()()

    def _opened(self, name: str, kind: str) -> Span | None:
        try:
            self._steps.phase_begins()
            return self._client.span(name, kind).__enter__()
        except Exception:  # noqa: BLE001 -- the training must not notice
            return None

    def fetch(self, iterator: Any) -> Any:
        """`next(iterator)` as a span."""
        span = self._opened("data", "data")
        try:
            return next(iterator)
        finally:
            if span is not None:
                span.__exit__(None, None, None)


class _TimedIterator:
    """An iterator in front of another; whatever else is asked of it, the other answers."""

    def __init__(self, inner: Any, phases: Phases) -> None:
        self._inner, self._phases = inner, phases

    def __iter__(self) -> _TimedIterator:
        return self

    def __next__(self) -> Any:
        return self._phases.fetch(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self._inner, name)
