"""Bounded decompression: every encoding decoded whole, the cap exact, bombs cheap, damage told apart from size."""

import gzip
import random
import tracemalloc
import zlib

import pytest
import zstandard

from crossrank.errors import BodyTooLarge, UndecodableBody, UnsupportedType
from crossrank.ingest.body import decompress

CLEAR = random.Random(7).randbytes(70_000) + b"abc" * 500_000
LIMIT = 4 << 20


def in_frames(clear: bytes) -> bytes:
    return zstandard.compress(clear[:10]) + zstandard.compress(clear[10:]) + zstandard.compress(b"")


def streamed(clear: bytes) -> bytes:
    worker = zstandard.ZstdCompressor(write_checksum=True).compressobj()  # no content size in the header
    return worker.compress(clear) + worker.flush()


ENCODED = {
    "": CLEAR,
    "identity": CLEAR,
    "gzip": gzip.compress(CLEAR),
    "GZip ": gzip.compress(CLEAR[:5]) + gzip.compress(b"") + gzip.compress(CLEAR[5:]) + b"\0" * 512,
    "x-gzip": gzip.compress(CLEAR),
    "deflate": zlib.compress(CLEAR),
    "zstd": in_frames(CLEAR),
    "ZSTD": streamed(CLEAR),
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_decoded_whole(encoding):
    assert decompress(ENCODED[encoding], encoding, LIMIT) == CLEAR


@pytest.mark.parametrize("encoding", ENCODED)
def test_cap_is_exact(encoding):
    assert decompress(ENCODED[encoding], encoding, len(CLEAR)) == CLEAR
    with pytest.raises(BodyTooLarge):
        decompress(ENCODED[encoding], encoding, len(CLEAR) - 1)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("lost", [1, 3, 8, 100])
def test_cut_off_body_is_undecodable(encoding, lost):
    with pytest.raises(UndecodableBody):
        decompress(ENCODED[encoding][:-lost] if encoding != "zstd" else streamed(CLEAR)[:-lost], encoding, LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("junk", [b"", b"\0", b"{}", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xff" * 100])
def test_junk_is_undecodable(encoding, junk):
    with pytest.raises(UndecodableBody):
        decompress(junk, encoding, LIMIT)
    with pytest.raises(UndecodableBody):
        decompress(ENCODED[encoding] + (junk or b"x"), encoding, LIMIT) if junk != b"\0" or encoding == "zstd" else decompress(
            junk, encoding, 1
        )


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "lz4", "\0", "compress"])
def test_other_encodings_are_named_unsupported(encoding):
    with pytest.raises(UnsupportedType, match="use identity, gzip, deflate or zstd"):
        decompress(b"x", encoding, LIMIT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_bomb_stops_at_the_cap(encoding):
    block = bytes(1 << 20)
    if encoding == "zstd":
        bomb = zstandard.compress(block) * 4000
    else:
        worker = zlib.compressobj(9, zlib.DEFLATED, 31 if encoding == "gzip" else 15)
        bomb = b"".join(worker.compress(block) for _ in range(300)) + worker.flush()
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decompress(bomb, encoding, LIMIT)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < LIMIT + (4 << 20)


def test_many_gzip_members_are_refused_soon():
    with pytest.raises(UndecodableBody, match="members"):
        decompress(gzip.compress(b"") * 20_000, "gzip", LIMIT)


def test_a_zstd_window_above_the_cap_is_refused():
    wide = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27, enable_ldm=True)
    ).compressobj()
    with pytest.raises(UndecodableBody):
        decompress(wide.compress(CLEAR) + wide.flush(), "zstd", LIMIT)
