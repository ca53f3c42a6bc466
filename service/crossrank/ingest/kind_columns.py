"""The kind and op columns: given values in their standard spelling, absent ones inferred from the name where that is safe."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.ingest.infer import kind_of_name, kind_of_op, op_of_name
from crossrank.ingest.words import Words, one_chunk
from crossrank.model.arrays import Int32Array
from crossrank.model.attrs import canonical_json
from crossrank.model.kinds import COLLECTIVE, KIND_CODE, KINDS, METRIC, OTHER, RECV, SEND, canonical_op

_UNKNOWN = -1


def kind_and_op(kind: Words, op: Words, name: Words, rows: pa.Table) -> tuple[Words, Words, pa.Array]:
    """Kind (never absent), op, and attrs to which a kind that is not one of ours was added as sent."""
    op = Words(op.codes, tuple(canonical_op(word) for word in op.words))
    code = _by_word(kind, [KIND_CODE.get(word.lower(), OTHER) for word in kind.words])
    if (code == _UNKNOWN).any():
        for guess in (_kinds_by_op(op), _kinds_by_name(name, rows), _metrics(rows)):
            code = np.where(code == _UNKNOWN, guess, code)
    code = np.where(code == _UNKNOWN, np.int32(OTHER), code)
    return Words(code, KINDS), op.else_from(_ops_by_name(name, code)), _with_foreign_kinds(kind, rows)


def _by_word(words: Words, values: list[int]) -> Int32Array:
    if len(set(values)) <= 1 and words.is_full:
        return np.full(len(words.codes), values[0] if values else _UNKNOWN, np.int32)
    return np.array([*values, _UNKNOWN], dtype=np.int32)[words.codes]


def _kinds_by_op(op: Words) -> Int32Array:
    return _by_word(op, [KIND_CODE.get(kind_of_op(word) or "", _UNKNOWN) for word in op.words])


def _kinds_by_name(name: Words, rows: pa.Table) -> Int32Array:
    in_group = (pc.is_valid(rows.column("group")).to_numpy()) | (pc.is_valid(rows.column("seq")).to_numpy())
    alone, grouped = (
        _by_word(name, [KIND_CODE.get(kind_of_name(word, in_group=inside) or "", _UNKNOWN) for word in name.words])
        for inside in (False, True)
    )
    return np.where(in_group, grouped, alone)


def _metrics(rows: pa.Table) -> Int32Array:
    return np.where(pc.is_valid(rows.column("value")).to_numpy(), np.int32(METRIC), np.int32(_UNKNOWN))


def _ops_by_name(name: Words, kind_code: Int32Array) -> Words:
    """Operations for communication spans that name none."""
    words: list[str] = []
    codes = np.full(len(kind_code), -1, dtype=np.int32)
    for kind in (COLLECTIVE, SEND, RECV):
        of_kind = kind_code == kind
        if not of_kind.any():
            continue
        found = [op_of_name(word, KINDS[kind]) for word in name.words]
        place = [len(words) + i if op is not None else -1 for i, op in enumerate(found)]
        codes = np.where(of_kind, _by_word(name, place), codes)
        words.extend(op or "" for op in found)
    return Words(codes, tuple(words))


def _with_foreign_kinds(kind: Words, rows: pa.Table) -> pa.Array:
    """attrs, with a kind that is not one of ours kept under `kind` unless an attribute of that name was sent."""
    attrs = one_chunk(rows.column("attrs"))
    foreign = kind.where([word.lower() not in KIND_CODE for word in kind.words])
    if not foreign.any():
        return attrs
    texts = attrs.to_pylist()
    for row in np.flatnonzero(foreign).tolist():
        sent = msgspec.json.decode(texts[row]) if texts[row] else {}
        texts[row] = canonical_json({"kind": kind.words[kind.codes[row]]} | sent)
    return pa.array(texts, type=pa.string())
