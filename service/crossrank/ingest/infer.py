"""What a span is when its sender did not say: the kind and the operation read from the name.

Only names whose meaning is not in doubt are read. A wrong guess would put a span among the synchronisation points, and a wrong
synchronisation point bends clocks; `other` costs nothing. So `gather`, `scatter` and `reduce`, which are also ordinary tensor
functions, count as collectives only when a group or a sequence number says so.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from crossrank.model.kinds import ALL_TO_ROOT_OPS, ROOT_TO_ALL_OPS, SYNCHRONISING_OPS, canonical_op

COLLECTIVE_OPS: Final = SYNCHRONISING_OPS | ROOT_TO_ALL_OPS | ALL_TO_ROOT_OPS
_CACHED_CHARACTERS: Final = 128  # bounds what the cache of names holds
_AMBIGUOUS: Final = frozenset({"gather", "scatter", "reduce"})

# The first pattern that the whole lower-case name matches decides; `_N`, `#N` or a layer number may follow.
_PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(rf"(?:{names})(?:[\s_.:#/-]*\d+)?"), kind)
    for names, kind in (
        (r"step|train_?step|training_step|iteration|iter|profilerstep", "step"),
        (
            r"fwd|forward(?:_pass)?|bwd|backward(?:_pass)?|forward_backward|optimizer(?:_?step)?|compute|attention|mlp|matmul|gemm",
            "compute",
        ),
        (r"data|data_?load(?:er|ing)?|load_?(?:data|batch)|next_?batch|fetch_?batch", "data"),
        (r"checkpoint(?:ing)?|ckpt|(?:save|load)_?(?:checkpoint|ckpt)|checkpoint_?(?:save|load)", "checkpoint"),
        (r"mem_?cpy|copy|h2d|d2h|d2d|host_to_device|device_to_host", "copy"),
        (r"sync|synchronize|(?:device|stream|cuda)_?synchronize|wait(?:_\w+)?", "sync"),
        (r"idle", "idle"),
    )
)


def kind_of_op(op: str) -> str | None:
    """The kind of a communication operation (canonical name), None when it is not a known one."""
    if op in COLLECTIVE_OPS:
        return "collective"
    return op if op in ("send", "recv") else None


def kind_of_name(name: str, *, in_group: bool) -> str | None:
    """The kind a name stands for, None when in doubt. `in_group`: the event has a group or a sequence number."""
    return _kind_of(name, in_group) if len(name) <= _CACHED_CHARACTERS else _kind_of.__wrapped__(name, in_group)


@lru_cache(maxsize=4096)  # jobs repeat a few hundred names in every request
def _kind_of(name: str, in_group: bool) -> str | None:
    op = canonical_op(name)
    kind = kind_of_op(op)
    if kind is not None and (in_group or op not in _AMBIGUOUS):
        return kind
    lower = name.lower()
    return next((kind for pattern, kind in _PATTERNS if pattern.fullmatch(lower)), None)


def op_of_name(name: str, kind: str) -> str | None:
    """The operation of a communication span whose sender gave none: read from its name, for messages the kind itself."""
    op = canonical_op(name)
    if kind == "collective":
        return op if op in COLLECTIVE_OPS else None
    return kind if kind in ("send", "recv") else None
