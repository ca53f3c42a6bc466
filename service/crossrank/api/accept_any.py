"""Any post to admitted events: what ingest decodes, and recorded files, which the importers decode."""

from __future__ import annotations

from dataclasses import replace

from crossrank.errors import BadParameter
from crossrank.importers.formats import open_recording
from crossrank.importers.rows import concatenated
from crossrank.importers.source import Source
from crossrank.ingest.accept import Decoder, accept
from crossrank.ingest.admit import admit
from crossrank.ingest.body import decompress
from crossrank.limits import Limits
from crossrank.model.post import Admitted, Post

IMPORT_ROUTE = "import"


def accept_any(post: Post, limits: Limits, decoder: Decoder = "compiled") -> Admitted:
    """Decodes and admits one request; pure, so that a replay of the log gives the same events.

    Raises BadParameter, UnsupportedType, BodyTooLarge, UndecodableBody.
    """
    if post.route != IMPORT_ROUTE:
        return accept(post, limits, decoder)
    said = post.parameters
    source = Source(name=said.get("name") or "the body", rank=_rank(said.get("rank")), at_ns=post.received_ns)
    body = decompress(post.body, post.content_encoding, limits.body_bytes)
    recording = open_recording(said.get("format", ""), body, source, limits)
    return replace(admit(concatenated(recording.batches, limits), post, limits), topology=recording.topology)


def _rank(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**31:
        raise BadParameter(f"rank: {text[:40]!r} is not a rank", field="rank")
    return int(text)
