"""Every communication of the process, once, by standing between the `c10d` operators and their backends.

    Python, DDP's reducer, FSDP, schedules  ->  c10d::allreduce_  ->  [this, at BackendSelect]  ->  PyTorch's kernel  ->  gloo, NCCL

BackendSelect is the place in PyTorch's dispatcher that every call passes, of any device, with gradients or without, right before its
backend's kernel; the operators of `c10d` leave it empty. The kernel itself runs without the interpreter's lock, as it would
without this: a thread of gloo may need the lock while it holds what the kernel waits for.

    span on the calling thread's lane   from the call to the operation's completion
    sync span `wait_all_reduce`         while Python waits for an operation that was issued asynchronously

Completion is known by the Work's future, by the return of `Work.wait`, or at the end of the backward pass during which DDP waited
for its buckets in C++, whichever shows first. On a CUDA device the host does not see it: the span is the launch (`is_async`), and
the operation comes from the flight recorder's ring (see `ring`).

The kernel gets the arguments as they came and its result is handed on as it is. A fault of the recording ends the recording
of that call, never the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from crossrank_client.clock import mono_ns
from crossrank_client.torch.groups import Groups
from crossrank_client.torch.operations import Operation, first_tensor, message_of, operations

if TYPE_CHECKING:
    from crossrank_client.client import Client
    from crossrank_client.span import Span

PLACE = "BackendSelect"
PENDING_KEPT = 4096
AUTOGRAD_THREADS = "Dummy-"  # threads that Python did not start: those of the autograd engine


class Calls:
    """Records while installed. faults: calls that could not be recorded."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._groups = Groups(client)
        self._pending: dict[int, _Call] = {}  # by id of the Work, which the call keeps alive, so that no other has that id
        self._library: Any = None
        self._wait: Any = None
        self.backward_lane: str | None = None
        self.faults = 0

    def install(self) -> None:
        """Stands between operators and backends."""
        self._library = torch.library.Library("c10d", "IMPL")
        for name, operation in operations().items():
            self._library.impl(name, self._observed(getattr(torch.ops.c10d, name).default, operation), PLACE, with_keyset=True)
        self._wait = Work.__dict__["wait"]
        Work.wait = self._observed_wait(Work.wait)

    def remove(self) -> None:
        """Leaves everything as it was."""
        if self._library is not None:
            self._library._destroy()  # noqa: SLF001 -- the only way to take kernels back before the interpreter ends
            Work.wait = self._wait
            self._library = None
        self._pending.clear()

    def sweep(self) -> None:
        """Ends operations that have completed although nobody in Python waited for them."""
        for call in list(self._pending.values()):
            try:
                future, work = call.future, call.work
                # gloo completes the future, which DDP waits for, before the Work.
                if (future is not None and future.done()) or (work is not None and work.is_completed()):
                    call.end()
            except Exception:  # noqa: BLE001 -- the training must not notice
                self.faults += 1

    def _observed(self, operator: Any, operation: Operation) -> Callable[..., Any]:
        opening, launched = self._open, self._launched
        dispatcher = torch._C  # noqa: SLF001 -- the dispatcher has no public names
        beyond = dispatcher._dispatch_keyset_full_after(getattr(dispatcher.DispatchKey, PLACE))  # noqa: SLF001 -- see above
        call_kernel = operator.redispatch

        def observed(keys: Any, *args: Any) -> Any:
            call = opening(operation, args)
            try:
                result = call_kernel(keys & beyond, *args)
            except BaseException as fault:
                if call is not None:
                    call.fail(fault)
                raise
            if call is not None:
                launched(operation, call, result)
            return result

        return observed

    def _open(self, operation: Operation, args: tuple[Any, ...]) -> _Call | None:
        try:
            group = self._groups.of(args[operation.group_at])
            peer_at = operation.peer_at
            peer = None if peer_at is None else group.ranks[args[peer_at]]
            if operation.kind == "collective":
                seq: int | None = group.next_seq()
            else:
                seq = None if peer is None else group.next_message(operation.kind, peer)
            size, dtype = message_of(operation, args)
            tensor = first_tensor(args[operation.any_tensor_at])
            on_device = tensor is not None and tensor.is_cuda
            at = operation.async_at
            # An argument left out is async_op=True. What gives back no Work is over when it returns.
            blocking = not operation.completes or (at is not None and at < len(args) and args[at] is False)
            span = self._client.begin(
                operation.op, operation.kind, lane=self._foreign_lane(), group=group.name, seq=seq, op=operation.op
            )
            fields = span.fields
            if peer is not None:
                fields["peer"] = peer
            if size is not None:
                fields["bytes"], fields["dtype"] = size, dtype
            if on_device:
                fields["is_async"] = True
            elif not blocking:
                fields["attrs"] = {"async": True}
            return _Call(self, span, group, blocking, on_device)
        except Exception:  # noqa: BLE001 -- the training must not notice
            self.faults += 1
            return None

    def _foreign_lane(self) -> str | None:
        """The lane of the thread that is in `backward()`, for calls of the engine's own threads on its behalf."""
        if self.backward_lane is None:
            return None
        lane = getattr(self._client.threads, "lane", None)
        if lane is None:
            lane = self._client.new_lane()
        return self.backward_lane if AUTOGRAD_THREADS in lane.name else None

    def _launched(self, operation: Operation, call: _Call, result: Any) -> None:
        try:
            boxed = result[-1] if isinstance(result, tuple) else result
            if call.on_device or boxed is None or not operation.completes:
                call.span.end()
                return
            work = call.work = Work.unbox(boxed)
            if len(self._pending) >= PENDING_KEPT:
                self.sweep()
            if len(self._pending) >= PENDING_KEPT:  # a job that issues without end what never completes
                self.faults += 1
                return
            self._pending[id(work)] = call
            if not call.blocking:
                call.future = work.get_future()
                call.future.add_done_callback(call.completed)
        except Exception:  # noqa: BLE001 -- no future: a wait or the next sweep ends it
            self.faults += 1

    def _observed_wait(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        pending, client = self._pending, self._client

        def observed_wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            call = pending.get(id(work))
            if call is None:
                return wait(work, *args, **kwargs)
            try:
                if call.blocking:
                    return wait(work, *args, **kwargs)
                with client.span(f"wait_{call.span.name}", "sync"):
                    return wait(work, *args, **kwargs)
            except BaseException as fault:
                call.fail(fault)
                raise
            finally:
                call.end()

        return observed_wait

    def forget(self, call: _Call) -> None:
        """The Work of a call is not needed any more; with it go the tensors it holds."""
        self._pending.pop(id(call.work), None)


class _Call:
    """One call of an operator between launch and completion."""

    __slots__ = ("_calls", "_group", "blocking", "future", "on_device", "span", "work")

    def __init__(self, calls: Calls, span: Span, group: Any, blocking: bool, on_device: bool) -> None:
        self._calls, self.span, self._group, self.blocking, self.on_device = calls, span, group, blocking, on_device
        self.work: Any = None
        self.future: Any = None

    def completed(self, _future: Any) -> None:
        """Called by the future, in a thread of the backend."""
        try:
            self.end()
        except Exception:  # noqa: BLE001 -- the training must not notice
            self._calls.faults += 1

    def end(self) -> None:
        """The operation is over; a second time does nothing."""
        at = mono_ns()
        work = self.work
        if work is not None:
            self._calls.forget(self)
            fields = self.span.fields
            if self.span.kind == "recv" and "peer" not in fields and self.span.end_ns is None:
                self._name_sender(work)
            self.work = self.future = None
        self.span.end(at)

    def _name_sender(self, work: Any) -> None:
        try:
            peer = self._group.ranks[work._source_rank()]  # noqa: SLF001 -- no public name
            self.span.set(peer=peer, seq=self._group.next_message("recv", peer))
        except Exception:  # noqa: BLE001 -- the receive stays without its sender
            self._calls.faults += 1

    def fail(self, fault: BaseException) -> None:
        """The call raised."""
        self.span.set(error=type(fault).__name__)
        self.end()
