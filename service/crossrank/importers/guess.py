"""What a file that one importer refused may be instead, by words near its beginning: for the message, never to choose a reader.

A guess that chose the reader would hide mistakes: a trace cut off in its head would be tried as something else, and the fault told would be
of the wrong format.
"""

from __future__ import annotations

from typing import BinaryIO, Final

from crossrank.importers.plain_bytes import PlainBytes

_LOOKED_AT: Final = 256 << 10
_PICKLE_PROTOCOLS: Final = frozenset(bytes((0x80, number)) for number in range(2, 6))
_WORDS: Final[tuple[tuple[str, tuple[bytes, ...]], ...]] = (
    ("kineto", (b'"traceEvents"',)),
    ("nccl_inspector", (b'"coll_perf"', b'"p2p_perf"')),
    ("flight_recorder", (b'"pg_status"', b'"pg_config"', b'"collective_seq_id"')),  # after kineto, whose head has a pg_config, too
    ("chakra", (b'"ctrl_deps"', b'"ctrlDeps"', b'"data_deps"')),
)


def hint(file: BinaryIO, tried: str) -> str:
    """A clause for the message about a file that is not of the format `tried`; "" where nothing is recognised."""
    head = PlainBytes(file).read(_LOOKED_AT)
    if not head.strip():
        return "the file is empty"
    likely = _formats(head)
    return "" if not likely or tried in likely else f"it looks like {' or '.join(likely)}"


def _formats(head: bytes) -> tuple[str, ...]:
    if head[:4] == b"PAR1":
        return "crossrank", "whatif"
    if head[:2] in _PICKLE_PROTOCOLS:
        return ("flight_recorder",)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return ()
    return next(((name,) for name, words in _WORDS if any(word in head for word in words)), ())
