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
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
