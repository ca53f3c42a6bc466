"""Names for the array types the whole program passes around.

Times are int64 nanoseconds everywhere. A float64 holds integers exactly only up to 2**53, and epoch nanoseconds are near
2**60.6: as a float they move in steps of 256 ns. So epoch times never pass through a float; differences from a nearby base may.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
UInt8Array = npt.NDArray[np.uint8]
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def distinct_pairs(first: npt.NDArray[np.signedinteger], second: npt.NDArray[np.signedinteger]) -> tuple[Int64Array, Int64Array]:
    """Distinct pairs of two columns of 32-bit numbers >= 0, ascending. Much faster than np.unique over rows."""
    packed = np.unique((first.astype(np.int64) << 32) | second.astype(np.int64))
    return packed >> 32, packed & 0xFFFFFFFF
