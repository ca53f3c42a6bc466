"""What a span can be, and what a communication operation guarantees about time.

The physics the whole product rests on (per collective over a set of ranks):

- synchronising operation: no member ends before every member has started;
- rooted operation: only the root's start binds the others (broadcast, scatter) or the others bind the root (reduce, gather);
- message: a receive ends no earlier than its send started.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

KINDS: Final[tuple[str, ...]] = (
    "step",
    "compute",
    "collective",
    "send",
    "recv",
    "copy",
    "data",
    "checkpoint",
    "sync",
    "idle",
    "metric",
    "mark",
    "other",
)
KIND_CODE: Final[dict[str, int]] = {kind: code for code, kind in enumerate(KINDS)}

STEP: Final = KIND_CODE["step"]
COMPUTE: Final = KIND_CODE["compute"]
COLLECTIVE: Final = KIND_CODE["collective"]
SEND: Final = KIND_CODE["send"]
RECV: Final = KIND_CODE["recv"]
DATA: Final = KIND_CODE["data"]
SYNC: Final = KIND_CODE["sync"]
IDLE: Final = KIND_CODE["idle"]
METRIC: Final = KIND_CODE["metric"]
MARK: Final = KIND_CODE["mark"]
OTHER: Final = KIND_CODE["other"]

SYNCHRONISING_OPS: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
ROOT_TO_ALL_OPS: Final = frozenset({"broadcast", "scatter"})
ALL_TO_ROOT_OPS: Final = frozenset({"reduce", "gather"})

_OP_SPELLINGS: Final[dict[str, str]] = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "barrier": "barrier",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
    "receive": "recv",
}
# Suffixes that name a variant of the same operation: torch's `all_gather_into_tensor`, `_allgather_base`, `all_to_all_single`.
_VARIANT_SUFFIXES: Final = ("intotensor", "tensor", "base", "coalesced", "single", "v", "object")
_CACHED_CHARACTERS: Final = 128  # bounds what the cache of names holds, whatever senders call things


def canonical_op(op: str) -> str:
    """The field's standard name of a communication operation: `AllReduce`, `all-reduce`, `allreduce_` -> `all_reduce`.

    An unknown name comes back lower-cased and otherwise unchanged, so nothing a user sent is lost.
    """
    return _standard_name(op) if len(op) <= _CACHED_CHARACTERS else _standard_name.__wrapped__(op)


@lru_cache(maxsize=4096)  # jobs repeat a few hundred names in every request
def _standard_name(op: str) -> str:
    squeezed = "".join(c for c in op.lower() if c.isalnum())
    for prefix in ("nccl", "gloo", "rccl", "mpi"):
        squeezed = squeezed.removeprefix(prefix)
    if squeezed in _OP_SPELLINGS:
        return _OP_SPELLINGS[squeezed]
    for suffix in _VARIANT_SUFFIXES:
        if squeezed.removesuffix(suffix) in _OP_SPELLINGS:
            return _OP_SPELLINGS[squeezed.removesuffix(suffix)]
    return op.lower()


_DTYPE_SPELLINGS: Final[dict[str, str]] = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}


def canonical_dtype(dtype: str) -> str:
    """One name for all spellings of an element type: `Float`, `torch.float32` -> `float32`; an unknown one lower-cased."""
    bare = dtype.lower().rpartition(".")[2].rpartition("::")[2]
    return _DTYPE_SPELLINGS.get(bare, bare)
