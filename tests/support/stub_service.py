"""A tiny HTTP service on a free loopback port whose answers a test writes: for the client side of the wire."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import zstandard


@dataclass
class Request:
    """One request as the stub received it; the body is decompressed."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    """What the stub answers: JSON of `answer`, or `raw` bytes as they are."""

    answer: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None


@dataclass
class Stub:
    """A running stub. `requests` grows as they come in."""

    url: str
    requests: list[Request]

    def posted(self) -> list[Request]:
        """The requests that carried events."""
        return [r for r in self.requests if r.method == "POST"]


@contextmanager
def stub_service(answer: Callable[[Request], Reply]) -> Iterator[Stub]:
    """Runs a stub that answers each request by `answer`, called by one thread at a time."""
    requests: list[Request] = []
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if self.headers.get("content-encoding") == "zstd":
                body = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(body)
            request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            with one_at_a_time:
                requests.append(request)
                reply = answer(request)
            payload = json.dumps(reply.answer).encode() if reply.raw is None else reply.raw
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = _serve  # noqa: N815 -- the names http.server asks for

        def log_message(self, *_args: object) -> None:
            """Says nothing: a test's output is for its failures."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Stub(f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def receipt(
    accepted: int, duplicate: int = 0, reasons: dict[str, int] | None = None, errors: list[dict[str, Any]] | None = None
) -> Reply:
    """The answer to a post of events."""
    reasons = reasons or {}
    return Reply(
        {
            "accepted": accepted,
            "duplicate": duplicate,
            "rejected": sum(reasons.values()),
            "reasons": reasons,
            "errors": errors or [],
            "received_ns": 1,
            "sent_ns": 2,
        }
    )


def fault(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Reply:
    """An error answer in the service's one shape."""
    return Reply({"error": {"code": code, "message": message, "detail": {}}}, status, headers or {})
