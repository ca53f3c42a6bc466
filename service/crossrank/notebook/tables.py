"""Answers as tables: rows of JSON or Arrow as Arrow, pandas or polars, with every nanosecond kept.

Epoch nanoseconds need 61 bits, a float64 has 53. pandas makes floats of integer columns with gaps unless told otherwise, so integers
become its nullable `Int64` here. Times can also come as timestamps of ns resolution, which hold the same 64 bits.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import pyarrow as pa

from crossrank.errors import BadParameter

As = Literal["dict", "arrow", "pandas", "polars"]
EPOCH_COLUMNS: Final = frozenset(
    {
        "start_ns", "end_ns", "aligned_start_ns", "aligned_end_ns", "first_arrival_ns", "last_arrival_ns", "received_ns",
        "last_received_ns", "at_ns", "since_ns",
    }
)  # fmt: skip
_CARRIED: Final = ("complete_to_ns", "alignment", "dropped", "truncated", "partial")


def table_of(answer: dict[str, Any], rows: str) -> pa.Table:
    """The list `rows` of an answer as a table; what every answer carries is JSON in the schema's metadata under `crossrank`."""
    carried = json.dumps({name: answer[name] for name in _CARRIED if name in answer})
    return pa.Table.from_pylist(answer[rows]).replace_schema_metadata({"crossrank": carried})


def shaped(table: pa.Table, as_: As, *, timestamps: bool) -> Any:
    """A table in the form asked for: pyarrow.Table, pandas.DataFrame or polars.DataFrame. Raises BadParameter."""
    if timestamps:
        for i, column in enumerate(table.schema):
            if column.name in EPOCH_COLUMNS and pa.types.is_integer(column.type):
                table = table.set_column(i, column.name, table.column(i).cast(pa.int64()).cast(pa.timestamp("ns", "UTC")))
    match as_:
        case "arrow":
            return table
        case "pandas":
            return _pandas(table)
        case "polars":
            import polars as pl  # noqa: PLC0415  - one of three forms; not everybody has it

            return pl.from_arrow(table)
        case _:
            raise BadParameter(f"as_ is dict, arrow, pandas or polars, not {as_!r}", field="as_")


def _pandas(table: pa.Table) -> Any:
    import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415  - one of three forms; not everybody has it

    for i, column in enumerate(table.schema):
        if pa.types.is_list(column.type) and pa.types.is_fixed_size_binary(column.type.value_type):  # which pandas cannot take
            table = table.set_column(i, column.name, table.column(i).cast(pa.list_(pa.binary())))
    exact = {
        pa.int64(): pd.Int64Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    frame = table.to_pandas(types_mapper=exact.get)
    frame.attrs.update(json.loads((table.schema.metadata or {}).get(b"crossrank", b"{}")))
    return frame
