"""Bodies compressed before they are kept or sent: zstd where the package `zstandard` is installed, else gzip.

Both let other threads run while they work. The lowest level is used: the rank's processor time is dearer than the network.
"""

from __future__ import annotations

import gzip

try:
    import zstandard

    ENCODING = "zstd"

    def compressed(body: bytes) -> bytes:
        """`body` in the encoding ENCODING."""
        packed: bytes = zstandard.ZstdCompressor(level=1).compress(body)
        return packed

except ImportError:
    ENCODING = "gzip"

    def compressed(body: bytes) -> bytes:
        """`body` in the encoding ENCODING."""
        return gzip.compress(body, compresslevel=1, mtime=0)
