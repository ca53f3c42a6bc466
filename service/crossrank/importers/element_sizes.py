"""Bytes of one element of a tensor, by the name its type has in torch, NCCL or numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_BYTES: Final = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "byte": 1, "uint8": 1, "char": 1,
    "int8": 1, "unsigned char": 1, "signed char": 1, "long int": 8, "unsigned long": 8, "short int": 2, "short": 2, "int16": 2, "int": 4, "int32": 4, "long": 8, "int64": 8, "bool": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "complexhalf": 4, "complexfloat": 8, "complex64": 8, "complexdouble": 16, "complex128": 16, "qint8": 1, "quint8": 1, "qint32": 4,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
}  # fmt: skip


def element_bytes(dtype: str) -> int | None:
    """Size of an element; None for a name we do not know."""
    return _BYTES.get(dtype.lower().removeprefix("torch.").removeprefix("c10::"))


def tensors_bytes(shapes: Sequence[Sequence[int]], dtypes: Sequence[str]) -> int | None:
    """Bytes of a list of tensors from their shapes and types; None when that cannot be told."""
    if not shapes or not dtypes:
        return None
    each = [element_bytes(d) for d in dtypes]
    if len(each) != len(shapes):
        each = each[:1] * len(shapes)  # some writers give one type for all
    total = 0
    for shape, size in zip(shapes, each, strict=True):
        if size is None or any(n < 0 for n in shape):
            return None
        total += math.prod(shape) * size
    return total if total < 2**63 else None
