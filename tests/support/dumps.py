"""Flight recorder dumps of a folder as events, the way an import admits them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from crossrank.importers.formats import decode_file
from crossrank.importers.source import Source
from crossrank.ingest.admit import admit
from crossrank.limits import Limits
from crossrank.model.post import Post

AT_NS = 1_780_000_000_000_000_000


def dump_events(files: Sequence[Path], job: str = "dumps") -> pa.Table:
    """All events of the dumps, in the order of the files."""
    return pa.concat_tables([_one(file, job) for file in files]).unify_dictionaries()


def _one(file: Path, job: str) -> pa.Table:
    limits = Limits()
    decoded = decode_file("flight_recorder", file.read_bytes(), Source(file.name, None, AT_NS), limits)
    post = Post(route="events", job=job, content_type="", content_encoding="", body=b"", received_ns=AT_NS)
    return admit(decoded, post, limits).events
