"""Puts the rows that compiled code read and those that a plain decoder read back in the order of the request."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from crossrank.model.arrays import Int64Array
from crossrank.model.decoded import RAW_SCHEMA, Decoded


def merge(decoded: Decoded, fast: pa.Table, index: Int64Array) -> None:
    """Adds rows, and their places in the request, to what was decoded; words may be dictionary-coded in them."""
    if not fast.num_rows:
        return
    if not decoded.rows.num_rows:
        decoded.rows, decoded.index = fast, index
        return
    order = np.argsort(np.concatenate([decoded.index, index]), kind="stable")
    decoded.rows = pa.concat_tables([decoded.rows, fast.cast(RAW_SCHEMA)]).take(pa.array(order))
    decoded.index = np.concatenate([decoded.index, index])[order]
