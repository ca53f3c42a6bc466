"""Sets of ranks as people write them: `0-31,40`."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from crossrank.errors import BadParameter
from crossrank.model.arrays import BoolArray

_PART: Final = re.compile(r"(\d{1,10})(?:-(\d{1,10}))?")


def in_rank_set(ranks: np.ndarray, text: str) -> BoolArray:
    """Mask over `ranks` of those in the set. Raises BadParameter for anything but numbers and ranges."""
    inside = np.zeros(len(ranks), dtype=bool)
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None:
            raise BadParameter(f"ranks must be like `0-31,40`, not {text[:60]!r}", field="ranks")
        first = int(found[1])
        inside |= (ranks >= first) & (ranks <= int(found[2] or first))
    return inside
