"""Bodies of a few megabytes that stand for 10 GB: refused with 413 by their beginning, without memory to speak of."""

import gzip
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import zstandard

from tests.support.server import Service

NDJSON, PROTOBUF = "application/x-ndjson", "application/x-protobuf"
PIECE, PIECES = 64 << 20, 160  # 10 GiB
ROOM_KB = 100 << 10
LINE = b'{"job":"ok","rank":0,"name":"a","start_ns":1000000000000000000,"end_ns":1000000000000000009,"span_id":"%016x"}\n'


def gzip_members() -> bytes:
    return gzip.compress(bytes(PIECE), 6) * PIECES


def gzip_stream() -> bytes:
    """One member: blocks that end in a full flush refer to nothing before them, so they can be repeated."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    head = packer.compress(bytes(PIECE)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + (packer.compress(bytes(PIECE)) + packer.flush(zlib.Z_FULL_FLUSH)) * (PIECES - 1)


def zstd_frames() -> bytes:
    return zstandard.compress(bytes(PIECE), 3) * PIECES


def zstd_frame() -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj()
    piece = bytes(PIECE)
    return b"".join(packer.compress(piece) for _ in range(PIECES)) + packer.flush()


def hidden() -> bytes:
    """Ordinary events first, the bomb behind them."""
    return gzip.compress(b"".join(LINE % i for i in range(1, 40_000)), 6) + gzip.compress(bytes(PIECE), 6) * PIECES


BOMBS = {"gzip": (gzip_members, gzip_stream, hidden), "zstd": (zstd_frames,)}
SLOW_TO_MAKE = ("zstd", zstd_frame)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with Service(tmp_path_factory.mktemp("data")) as running, running.client() as client:
        for serial in (1, 2):  # everything that is loaded or compiled at first use
            body = gzip.compress(b"".join(LINE % (1000 * serial + i) for i in range(500)))
            client.post("/v1/events", content=body, headers={"Content-Type": NDJSON, "Content-Encoding": "gzip"}).raise_for_status()
        yield running


def memory_kb(service: Service, what: str) -> int:
    text = Path(f"/proc/{service.pid}/status").read_text()
    found = re.search(rf"^{what}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def drop(service: Service, bodies: list[tuple[str, str, bytes]]) -> tuple[list[int], int]:
    """Posts all bodies at once; the statuses, and by how much the resident memory rose at its highest."""
    Path(f"/proc/{service.pid}/clear_refs").write_text("5")  # resets the high-water mark
    before = memory_kb(service, "VmRSS")

    def send(one: tuple[str, str, bytes]) -> int:
        kind, encoding, body = one
        headers = {"Content-Type": kind, "Content-Encoding": encoding}
        route = "traces" if kind == PROTOBUF else "events"
        return httpx.post(f"{service.url}/v1/{route}", content=body, headers=headers, timeout=120).status_code

    with ThreadPoolExecutor(len(bodies)) as pool:
        statuses = list(pool.map(send, bodies))
    return statuses, memory_kb(service, "VmHWM") - before


@pytest.mark.parametrize(
    ("encoding", "make"), [(e, m) for e, makers in BOMBS.items() for m in makers], ids=lambda v: getattr(v, "__name__", v)
)
def test_four_bombs_at_once(service: Service, encoding: str, make) -> None:
    body = make()
    statuses, risen_kb = drop(service, [(kind, encoding, body) for kind in (NDJSON, PROTOBUF)] * 2)
    assert set(statuses) <= ({413, 503} if make is hidden else {413})
    assert 413 in statuses
    assert risen_kb <= ROOM_KB
    line = LINE % 7
    assert httpx.post(f"{service.url}/v1/events", content=line, headers={"Content-Type": NDJSON}).status_code == 200


@pytest.mark.long
def test_fifty_bombs_at_once(service: Service) -> None:
    makers = [(encoding, make) for encoding, makers in BOMBS.items() for make in makers if make is not hidden]
    made = [(encoding, make()) for encoding, make in [*makers, SLOW_TO_MAKE]]
    bodies = [(kind, *made[i % len(made)]) for i, kind in enumerate([NDJSON, PROTOBUF] * 25)]
    statuses, risen_kb = drop(service, bodies)
    assert statuses == [413] * 50
    assert risen_kb <= ROOM_KB
