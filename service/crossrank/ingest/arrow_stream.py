"""Arrow IPC streams to columns: any subset of the event columns, in compatible types.

Every batch is validated in full before anything reads it, because a crafted offset would otherwise send a later reader outside
its memory. Types whose content can be far larger than their bytes (views, run-end encoding, dictionaries outside words) are
refused, and so are compressed buffers: the request's own Content-Encoding has a running cap, Arrow's has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.ingest import reasons
from crossrank.ingest.arrow_messages import refuse_compressed
from crossrank.ingest.ids import hex_column
from crossrank.ingest.verdicts import Verdicts
from crossrank.ingest.words import Words
from crossrank.limits import Limits
from crossrank.model.attrs import TooDeep, attrs_text
from crossrank.model.decoded import RAW_SCHEMA, Decoded, raw_table
from crossrank.model.flags import EventFlag

_IDS: Final = {"trace_id": reasons.INVALID_TRACE_ID, "span_id": reasons.INVALID_SPAN_ID, "parent_span_id": ""}
_SENT: Final = frozenset(RAW_SCHEMA.names) - {"flags"}


def decode(body: bytes, limits: Limits) -> Decoded:
    """A stream of record batches; an empty body holds none. Raises UndecodableBody, BodyTooLarge."""
    if not body:
        return Decoded(raw_table([]), np.empty(0, dtype=np.int64))
    refuse_compressed(body)
    sent = _read(body, limits)
    verdicts = Verdicts(len(sent))
    flags = np.zeros(len(sent), dtype=np.int32)
    columns: dict[str, pa.Array] = {}
    for name in RAW_SCHEMA.names:
        kind = RAW_SCHEMA.field(name).type
        if name not in _SENT or name not in sent.column_names:
            columns[name] = pa.nulls(len(sent), kind)
        elif name in _IDS:
            columns[name] = _ids(name, sent.column(name), verdicts, flags)
        elif name in ("attrs", "otel"):
            columns[name] = _json_texts(sent.column(name), name, verdicts, flags, limits)
        else:
            columns[name] = _cast(name, sent.column(name), kind)
    columns["flags"] = pa.array(flags)
    rows = pa.table(columns, schema=_schema_of(columns))
    index = np.arange(len(sent), dtype=np.int64)
    rejections = verdicts.rejections(index, Words.of(rows.column("job")), rows)
    ignored = sorted(set(sent.column_names) - {*_SENT, "flags", "received_ns"})
    warnings = [f"columns that are not event columns were ignored: {', '.join(n[:40] for n in ignored[:10])}"] if ignored else []
    return Decoded(rows.filter(pa.array(verdicts.kept)), index[verdicts.kept], rejections, warnings)


def _schema_of(columns: dict[str, pa.Array]) -> pa.Schema:
    return pa.schema([pa.field(name, column.type) for name, column in columns.items()])


def _read(body: bytes, limits: Limits) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    rows = 0
    try:
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            schema = reader.schema
            if len(set(schema.names)) != len(schema.names):
                raise UndecodableBody("The Arrow stream has two columns of one name")
            for batch in reader:
                rows += batch.num_rows
                if rows > limits.events_per_body:
                    raise BodyTooLarge(f"The body holds more than {limits.events_per_body} events")
                batch.validate(full=True)
                batches.append(batch)
        return pa.Table.from_batches(batches, schema=schema)
    except (pa.ArrowException, OSError, ValueError) as fault:
        raise UndecodableBody(f"The body is not a valid Arrow IPC stream: {str(fault)[:200]}") from fault


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_word(kind: pa.DataType) -> bool:
    return _is_text(kind) or (pa.types.is_dictionary(kind) and _is_text(kind.value_type))


def _is_list_of(inner: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and inner(kind.value_type)


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_timestamp(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or pa.types.is_integer(kind)


def _accepts(name: str, kind: pa.DataType) -> Callable[[pa.DataType], bool]:
    if name in ("start_ns", "end_ns"):
        return _is_time
    if kind == pa.string():
        return _is_word
    if pa.types.is_list(kind):
        return _is_list_of(pa.types.is_integer if name == "group_ranks" else lambda t: t == pa.binary(8))
    if pa.types.is_boolean(kind):
        return pa.types.is_boolean
    return _is_number if kind == pa.float64() else pa.types.is_integer


def _cast(name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """The column in its decoded type; words stay dictionary-coded, so that their content is not multiplied."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if not _accepts(name, kind)(column.type):
        raise UndecodableBody(f"Column {name!r} has type {str(column.type)[:60]}, which cannot hold {kind}", field=name)
    array = _array(column)
    try:
        if pa.types.is_timestamp(column.type):
            array = array.cast(pa.timestamp("ns"))
        if pa.types.is_dictionary(column.type):
            if array.dictionary.null_count:
                raise UndecodableBody(f"Column {name!r} has a dictionary with an absent word", field=name)
            return array if column.type.value_type == pa.string() else array.cast(pa.dictionary(pa.int32(), pa.string()))
        return array.cast(kind)
    except pa.ArrowException as fault:
        raise UndecodableBody(f"Column {name!r} cannot be read as {kind}: {str(fault)[:100]}", field=name) from fault


def _ids(name: str, column: pa.ChunkedArray, verdicts: Verdicts, flags: np.ndarray) -> pa.Array:
    """Ids as fixed-size binary or hex text; a bad one refuses the event, a bad parent id is dropped and flagged."""
    kind = RAW_SCHEMA.field(name).type
    width = kind.byte_width
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    array = _array(column)
    if _is_text(column.type):
        ids, bad = hex_column(array.to_pylist(), width)
    elif column.type == kind:
        values = [raw if raw is None or any(raw) else None for raw in array.to_pylist()]
        ids = pa.array(values, type=kind)
        bad = array.is_valid().to_numpy(zero_copy_only=False) & ids.is_null().to_numpy(zero_copy_only=False)
    else:
        raise UndecodableBody(f"Column {name!r} has type {str(column.type)[:60]}; ids are binary({width}) or hex text", field=name)
    if _IDS[name]:
        verdicts.mark(bad, _IDS[name], name)
    elif _is_text(column.type):
        flags[bad] |= int(EventFlag.INVALID_PARENT)
    return ids


def _json_texts(column: pa.ChunkedArray, name: str, verdicts: Verdicts, flags: np.ndarray, limits: Limits) -> pa.Array:
    """JSON objects as text, brought to canonical form."""
    if not (_is_text(column.type) or pa.types.is_null(column.type)):
        raise UndecodableBody(f"Column {name!r} has type {str(column.type)[:60]}; it holds JSON objects as text", field=name)
    texts: list[str | None] = []
    refused: dict[str, list[int]] = {}
    for row, sent in enumerate(_array(column).to_pylist()):
        text, cut, reason = _canonical(sent, limits)
        texts.append(text)
        if reason:
            refused.setdefault(reason, []).append(row)
        if cut:
            flags[row] |= int(EventFlag.TRUNCATED)
    for reason, rows in refused.items():
        mask = np.zeros(len(texts), dtype=np.bool_)
        mask[rows] = True
        verdicts.mark(mask, reason, name)
    return pa.array(texts, type=pa.string())


def _canonical(sent: str | None, limits: Limits) -> tuple[str | None, bool, str]:
    if sent is None:
        return None, False, ""
    if len(sent) > limits.event_bytes:
        return None, False, reasons.TOO_LARGE
    try:
        found: Any = msgspec.json.decode(sent)
        if not isinstance(found, dict):
            return None, False, reasons.NOT_AN_OBJECT
        text, cut = attrs_text(found, limits)
    except (RecursionError, TooDeep):
        return None, False, reasons.TOO_DEEP
    except (msgspec.DecodeError, UnicodeError):
        return None, False, reasons.BAD_JSON
    return text, cut, ""
