"""Writes `schemas/`: the wire and storage contracts, generated from the code that enforces them.

`python -m crossrank.schemas` writes, `--check` compares and exits 1 where a file differs from what the code says.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossrank.api import shapes
from crossrank.app import build_api, close_rooms, open_rooms
from crossrank.limits import Limits
from crossrank.model.columns import EVENT_COLUMNS, Column
from crossrank.model.kinds import KINDS
from crossrank.query.aligned import ALIGNED_COLUMNS
from crossrank.settings import Settings

FOLDER = Path(__file__).resolve().parents[2] / "schemas"
HEX16 = {"type": "string", "pattern": "^[0-9a-fA-F]{16}$"}
HEX32 = {"type": "string", "pattern": "^[0-9a-fA-F]{32}$"}
INT64 = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
INT32 = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}


def columns_schema() -> dict[str, Any]:
    """Arrow and Parquet columns of segments and exports: name, type, unit, meaning."""
    aligned = [
        Column(name, kind, nullable=True, unit=unit, meaning=meaning, sent=False) for name, kind, unit, meaning in ALIGNED_COLUMNS
    ]
    return {
        "events": [_column(c) for c in EVENT_COLUMNS],
        "added_on_export": [_column(c) for c in aligned],
    }


def _column(c: Column) -> dict[str, Any]:
    return {"name": c.name, "type": str(c.type), "nullable": c.nullable, "unit": c.unit, "meaning": c.meaning, "sent": c.sent}


def event_schema() -> dict[str, Any]:
    """JSON Schema of one event in `POST /v1/events`: the full form or the seed form."""
    full = {c.name: {**_json_type(c), "description": c.meaning} for c in EVENT_COLUMNS if c.sent and c.name != "otel"}
    full["kind"] = {"enum": list(KINDS), "description": "What the span is; anything else is stored as `other`."}
    full["attrs"] = {"type": "object", "description": "Anything else; types are kept."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "crossrank event",
        "anyOf": [{"$ref": "#/$defs/full"}, {"$ref": "#/$defs/seed"}],
        "$defs": {
            "full": {
                "type": "object",
                "description": "One span. `job` may come from the X-Crossrank-Job header instead; unknown fields are kept in attrs.",
                "required": ["rank", "start_ns"],
                "properties": full,
            },
            "seed": {
                "type": "object",
                "description": "One end of a span: `<name>_start` and `<name>_end` with one span_id are joined, also across requests.",
                "required": ["event", "rank", "timestamp_ns", "span_id"],
                "properties": {
                    "trace_id": HEX32,
                    "span_id": HEX16,
                    "parent_span_id": {"anyOf": [HEX16, {"type": "null"}]},
                    "event": {"type": "string", "examples": ["allreduce_start", "allreduce_end"]},
                    "rank": INT32,
                    "timestamp_ns": INT64,
                    "attrs": {"type": "object"},
                },
            },
        },
    }


def _json_type(c: Column) -> dict[str, Any]:
    if c.name == "trace_id":
        return HEX32
    if c.name in ("span_id", "parent_span_id"):
        return HEX16
    if c.name == "links":
        return {"type": "array", "items": HEX16}
    if pa.types.is_list(c.type):
        return {"type": "array", "items": INT32}
    if pa.types.is_int32(c.type):
        return INT32
    if pa.types.is_int64(c.type):
        return {**INT64, **({"type": ["integer", "null"]} if c.nullable else {})}
    if pa.types.is_boolean(c.type):
        return {"type": "boolean"}
    return {"type": "number"} if pa.types.is_float64(c.type) else {"type": "string"}


def openapi() -> dict[str, Any]:
    """The OpenAPI document, as the running service gives it."""
    with tempfile.TemporaryDirectory() as folder:
        rooms = open_rooms(Settings(data=Path(folder)), Limits())
        try:
            return build_api(rooms).openapi()
        finally:
            close_rooms(rooms)


def documents() -> dict[str, dict[str, Any]]:
    """Every file of `schemas/` by name."""
    return {
        "event.schema.json": event_schema(),
        "columns.json": columns_schema(),
        "error.schema.json": shapes.ErrorAnswer.model_json_schema(),
        "openapi.json": openapi(),
    }


def main() -> int:
    """Writes or checks; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    stale = []
    for name, document in documents().items():
        text = json.dumps(document, indent=1, sort_keys=True) + "\n"
        path = FOLDER / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"{'out of date (run `make schemas`)' if check else 'written'}: {', '.join(stale)}\n")
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
