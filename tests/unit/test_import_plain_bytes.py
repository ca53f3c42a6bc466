"""Compressed files in pieces of bounded size, whole or damaged."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import pytest
import zstandard

from crossrank.errors import BodyTooLarge, UndecodableBody
from crossrank.importers.plain_bytes import PlainBytes, read_plain

TEXT = bytes(range(256)) * 5000
PACKS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "gzip members": lambda d: gzip.compress(d[:7]) + gzip.compress(b"") + gzip.compress(d[7:]) + bytes(100_000),
    "many members": lambda d: b"".join(gzip.compress(d[i : i + 1000]) for i in range(0, len(d), 1000)),
    "zstd frames": lambda d: zstandard.compress(d[:7]) + zstandard.compress(d[7:]),
}


@pytest.mark.parametrize("pack", sorted(PACKS))
@pytest.mark.parametrize("size", [1 << 10, 1 << 20, 1 << 24])
def test_pieces_have_the_asked_size_and_join_to_the_text(pack, size):
    plain = PlainBytes(io.BytesIO(PACKS[pack](TEXT)))
    pieces = []
    while piece := plain.read(size):
        pieces.append(piece)
    assert b"".join(pieces) == TEXT
    assert {len(p) for p in pieces[:-1]} <= {size}
    assert not plain.cut_off


@pytest.mark.parametrize("pack", ["gzip", "zstd", "many members"])
def test_a_damaged_file_gives_what_it_has(pack):
    packed = PACKS[pack](TEXT * 5)
    plain = PlainBytes(io.BytesIO(packed[: len(packed) // 2 + 5]))
    found = plain.read(1 << 30)
    assert (TEXT * 5).startswith(found)
    assert plain.cut_off or pack == "zstd"


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_bomb_costs_no_memory(pack):
    bomb = pack(bytes(300 << 20))
    plain = PlainBytes(io.BytesIO(bomb))
    tracemalloc.start()
    while plain.read(1 << 20):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    with pytest.raises(BodyTooLarge):
        read_plain(io.BytesIO(bomb), 1 << 20)


def test_a_file_of_members_without_content_is_refused():
    with pytest.raises(UndecodableBody, match="members"):
        PlainBytes(io.BytesIO(gzip.compress(b"") * 20_000)).read(10)


def test_what_must_be_whole_is_refused_when_it_is_not():
    with pytest.raises(UndecodableBody, match="cut off"):
        read_plain(io.BytesIO(gzip.compress(TEXT)[:-10]), 1 << 30)
