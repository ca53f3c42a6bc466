"""What an event of a Kineto trace is, by its category and name, and the columns of a communication from its arguments.

Only work on the device counts as compute, copy or communication when the trace has any: the host runs ahead of the device, so its
operators say when work was launched, not when it was done. In a trace without kernels the host's operators are the work.

    kernel                      compute, or a communication when its name is that of an NCCL, RCCL or MSCCL kernel
    gpu_memcpy, gpu_memset      copy
    cuda_sync, …Synchronize     sync: the host or a stream waits; never compute
    user_annotation             ProfilerStep#N is step N; gloo:all_reduce is the operation itself, as gloo has no kernels
    cpu_op                      compute without a device, else other; record_param_comms is the launch of a communication
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgspec

from crossrank.importers.element_sizes import element_bytes, tensors_bytes
from crossrank.importers.rows import int64
from crossrank.model.kinds import ALL_TO_ROOT_OPS, ROOT_TO_ALL_OPS, SYNCHRONISING_OPS, canonical_op

DEVICE_CATEGORIES: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
LAUNCH_CATEGORIES: Final = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime", "mtia_ccp_events"})
_COLLECTIVES: Final = SYNCHRONISING_OPS | ROOT_TO_ALL_OPS | ALL_TO_ROOT_OPS
_COMM_KERNEL: Final = re.compile(r"(?:void )?(?:nccl|rccl|msccl)\w*?(?:Kernel|kernel)", re.IGNORECASE)
_KERNEL_OP: Final = re.compile(
    r"(AllReduce|AllGather|ReduceScatter|Broadcast|AllToAll|AlltoAll|SendRecv|Reduce|Gather|Scatter)", re.IGNORECASE
)
_STEP: Final = re.compile(r"ProfilerStep\s*#\s*(\d{1,18})")
_GLOO: Final = re.compile(r"gloo:(\w+)")
SEND_RECV: Final = "send_recv"  # one kernel for grouped sends and receives, all-to-all among them


class Role(IntEnum):
    """What a span is; the last two depend on what else is in the trace."""

    OTHER = 0
    STEP = 1
    COMPUTE = 2
    COLLECTIVE = 3
    SEND = 4
    RECV = 5
    COPY = 6
    SYNC = 7
    HOST_WORK = 8  # compute where the trace has no device
    LAUNCH = 9  # the communication itself where the trace has no kernels of communications


COMMUNICATION: Final = frozenset({Role.COLLECTIVE, Role.SEND, Role.RECV, Role.LAUNCH})


@dataclass(frozen=True, slots=True)
class Communication:
    """The columns of a communication; None where the trace does not say."""

    op: str | None = None
    group: str | None = None
    ranks_text: str | None = None
    seq: int | None = None
    peer: int | None = None
    size_bytes: int | None = None
    dtype: str | None = None


def role_of(category: str, name: str) -> Role:
    """The role by category and name alone."""
    if category == "kernel":
        return Role.COLLECTIVE if is_communication_kernel(name) else Role.COMPUTE
    if category in ("gpu_memcpy", "gpu_memset"):
        return Role.COPY
    if category == "cuda_sync" or (category in LAUNCH_CATEGORIES and "Synchronize" in name):
        return Role.SYNC
    if category == "user_annotation":
        return _annotation(name)
    if category == "cpu_op":
        if name == "record_param_comms":
            return Role.LAUNCH
        return Role.OTHER if name.startswith("c10d::") else Role.HOST_WORK
    return Role.OTHER


def _annotation(name: str) -> Role:
    if _STEP.fullmatch(name):
        return Role.STEP
    gloo = _GLOO.fullmatch(name)
    return _role_of_op(canonical_op(gloo[1])) if gloo else Role.OTHER


def _role_of_op(op: str) -> Role:
    return {"send": Role.SEND, "recv": Role.RECV}.get(op, Role.COLLECTIVE)


def is_communication_kernel(name: str) -> bool:
    """`ncclKernel_AllReduce_RING_LL…`, `ncclDevKernel_SendRecv`, `ncclDevKernel_Generic_4` (RCCL), `ncclAllReduceRingLLKernel…`."""
    return _COMM_KERNEL.match(name) is not None


def step_of(name: str) -> int | None:
    """The number in `ProfilerStep#N`."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None


def communication(role: Role, name: str, args: Mapping[str, Any]) -> tuple[Role, Communication]:
    """The final role and the columns of a communication span from its NCCL arguments, else from its name."""
    stated = args.get("Collective name")
    op = canonical_op(stated) if isinstance(stated, str) and stated else _op_in_name(name)
    if role is Role.COLLECTIVE and op is not None:
        role = _role_of_op(op)
    elif role is Role.LAUNCH and op not in _COLLECTIVES:
        role = Role.OTHER  # waits, and messages, whose launch would be taken for the message
    dtype = args.get("dtype")
    return role, Communication(
        op=op,
        group=_word(args.get("Process Group Name", args.get("Process Group ID"))),
        ranks_text=_word(args.get("Process Group Ranks")),
        seq=int64(args.get("Seq")),
        peer=int64(args.get("Dst Rank" if op == "send" else "Src Rank")) if op in ("send", "recv") else None,
        size_bytes=_size_bytes(op, args),
        dtype=dtype if isinstance(dtype, str) and dtype else None,
    )


def _op_in_name(name: str) -> str | None:
    gloo = _GLOO.fullmatch(name)
    if gloo:
        return canonical_op(gloo[1])
    found = _KERNEL_OP.search(name)
    if found is None:
        return None
    return SEND_RECV if found[1].lower() == "sendrecv" else canonical_op(found[1])


def _word(value: object) -> str | None:
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text or None


def _size_bytes(op: str | None, args: Mapping[str, Any]) -> int | None:
    sent, received = int64(args.get("In msg nelems")), int64(args.get("Out msg nelems"))
    elements = received if op in ("all_gather", "recv") and received is not None else sent if sent is not None else received
    dtype = args.get("dtype")
    size = element_bytes(dtype) if isinstance(dtype, str) else None
    if elements is not None and size is not None and 0 <= elements < 2**58:
        return elements * size
    shapes, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return None
    if not all(isinstance(shape, list) and all(type(n) is int for n in shape) for shape in shapes):
        return None
    return tensors_bytes(shapes, [str(t) for t in types])


def members(ranks: object) -> list[int] | None:
    """Ranks of a group: a list, or the text of one; None when shortened, empty or odd."""
    if isinstance(ranks, str):
        try:
            ranks = msgspec.json.decode(ranks)
        except (msgspec.DecodeError, RecursionError):
            return None
    if not isinstance(ranks, list) or not ranks:
        return None
    found = [int64(r) for r in ranks]
    return [r for r in found if r is not None] if None not in found else None
