"""What each operator of `c10d` does: the columns of its event, read from the operator's own schema.

Every communication of a process, whoever issues it (Python, DDP's reducer in C++, FSDP, pipeline schedules, functional
collectives), is a call of one of these operators. Their schemas name the arguments, so places need not be written down:

    c10d::broadcast_(Tensor[] tensors, ProcessGroup process_group, int root_rank, int root_tensor, bool async_op=True, ...)

`bytes` is the whole message as bandwidth formulas mean it: what a member holds in the end of an all-gather, else what it puts in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

# operator: (operation, kind, arguments whose tensors are the message; the first that holds any counts)
OPERATORS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "allreduce_": ("all_reduce", "collective", ("tensors",)),
    "allreduce_coalesced_": ("all_reduce", "collective", ("tensors",)),
    "allgather_": ("all_gather", "collective", ("output_tensors",)),
    "_allgather_base_": ("all_gather", "collective", ("output_tensor",)),
    "allgather_coalesced_": ("all_gather", "collective", ("output_lists",)),
    "allgather_into_tensor_coalesced_": ("all_gather", "collective", ("outputs",)),
    "reduce_scatter_": ("reduce_scatter", "collective", ("input_tensors",)),
    "_reduce_scatter_base_": ("reduce_scatter", "collective", ("input_tensor",)),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "collective", ("inputs",)),
    "alltoall_": ("all_to_all", "collective", ("input_tensors",)),
    "alltoall_base_": ("all_to_all", "collective", ("input",)),
    "broadcast_": ("broadcast", "collective", ("tensors",)),
    "reduce_": ("reduce", "collective", ("tensors",)),
    "gather_": ("gather", "collective", ("input_tensors",)),
    "scatter_": ("scatter", "collective", ("input_tensors", "output_tensors")),
    "barrier": ("barrier", "collective", ()),
    "monitored_barrier_": ("barrier", "collective", ()),
    "send": ("send", "send", ("tensors",)),
    "recv_": ("recv", "recv", ("tensors",)),
    "recv_any_source_": ("recv", "recv", ("tensors",)),
}
_PEERS = ("root_rank", "dst", "src")  # a rank within the group


@dataclass(frozen=True)
class Operation:
    """One operator. Places are of its arguments. completes: it gives back a Work; else it is over when it returns."""

    op: str
    kind: str
    group_at: int
    message_at: tuple[int, ...]
    any_tensor_at: int
    peer_at: int | None
    async_at: int | None
    completes: bool


def operations() -> dict[str, Operation]:
    """Those that this version of PyTorch has, by operator."""
    return {name: found for name in OPERATORS if (found := _operation(name)) is not None}


def _operation(name: str) -> Operation | None:
    op, kind, message = OPERATORS[name]
    try:
        schema = torch._C._get_schema(f"c10d::{name}", "")  # noqa: SLF001 -- there is no public way to a schema by name
    except RuntimeError:
        return None
    places = {argument.name: at for at, argument in enumerate(schema.arguments)}
    if "process_group" not in places:
        return None
    return Operation(
        op=op,
        kind=kind,
        group_at=places["process_group"],
        message_at=tuple(places[argument] for argument in message if argument in places),
        any_tensor_at=0,
        peer_at=next((places[peer] for peer in _PEERS if peer in places), None),
        async_at=places.get("async_op"),
        completes=bool(schema.returns),
    )


def first_tensor(value: Any) -> torch.Tensor | None:
    """The first tensor in a tensor or in lists of them."""
    while isinstance(value, (list, tuple)):
        if not value:
            return None
        value = value[0]
    return value if isinstance(value, torch.Tensor) else None


def size_bytes(value: Any) -> int:
    """Bytes of a tensor or of lists of them."""
    if isinstance(value, (list, tuple)):
        return sum(map(size_bytes, value))
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0


def message_of(operation: Operation, args: tuple[Any, ...]) -> tuple[int | None, str | None]:
    """Bytes and element type of a call's message; None where it has none."""
    for at in operation.message_at:
        tensor = first_tensor(args[at])
        if tensor is not None:
            return size_bytes(args[at]), str(tensor.dtype)[6:]  # without `torch.`
    return None, None
