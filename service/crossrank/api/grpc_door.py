"""OTLP/gRPC: the same bytes through the same decoder as HTTP, with gRPC's words for the same faults.

The request is taken as raw bytes (the deserialiser is the identity), so no protobuf object is built. Overload is UNAVAILABLE with a
RetryInfo in both places that clients look: `grpc-status-details-bin` (Go, the Collector) and `google.rpc.retryinfo-bin` (the Python
exporter). RESOURCE_EXHAUSTED, sent by gRPC itself for a message above 64 MiB, comes without one: it must not be tried again.
Messages are read by a fixed number of threads, one each, so what waits is held by flow control at the senders.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from google.rpc import error_details_pb2

from crossrank.api.errors import PROTOBUF, RPC_CODE, STATUS, retry_after_s, rpc_status
from crossrank.api.ingest_routes import otlp_message, otlp_reply
from crossrank.api.rooms import Rooms
from crossrank.api.taking import take
from crossrank.errors import BadParameter, CrossrankError
from crossrank.model.post import Post

log = logging.getLogger(__name__)
METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
_THREADS: Final = 16  # wait for the disk most of the time
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class GrpcDoor:
    """The running gRPC server."""

    def __init__(self, rooms: Rooms, address: str, *, certificate: tuple[Path, Path] | None) -> None:
        """address: host:port, port 0 for a free one. certificate: chain and key (PEM) for TLS. Raises BadParameter."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="grpc")
        options = [("grpc.max_receive_message_length", rooms.limits.body_bytes), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(self._threads, options=options)
        self._server.add_generic_rpc_handlers((_Handlers(rooms),))
        try:
            if certificate is None:
                self.port = self._server.add_insecure_port(address)
            else:
                chain, key = (path.read_bytes() for path in certificate)
                self.port = self._server.add_secure_port(address, grpc.ssl_server_credentials([(key, chain)]))
        except (RuntimeError, OSError) as fault:
            raise BadParameter(
                f"cannot listen on {address} for gRPC; choose another port with --grpc-port", field="grpc_port"
            ) from fault
        self._server.start()

    def stop(self, grace_s: float) -> Callable[[], None]:
        """Takes nothing new from now on; calling what is returned waits for what is in hand."""
        stopped = self._server.stop(grace_s)

        def wait() -> None:
            stopped.wait()
            self._threads.shutdown()

        return wait


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._export = grpc.unary_unary_rpc_method_handler(self._on_export)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """The handler of a method; None for one that does not exist, which gRPC answers with UNIMPLEMENTED."""
        return self._export if handler_call_details.method == METHOD else None

    def _on_export(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            reply = self._take(body, {str(k): v for k, v in context.invocation_metadata()})
        except CrossrankError as fault:
            self._fail(context, fault)
        except Exception:
            log.exception("unexpected fault in %s", METHOD)
            self._count("INTERNAL")
            context.abort(grpc.StatusCode.INTERNAL, "a fault of the service; its log says more")
        self._count("OK")
        return reply

    def _take(self, body: bytes, metadata: dict[str, Any]) -> bytes:
        rooms = self._rooms
        caller = rooms.guard.admit(_text(metadata.get("authorization")), "ingest")
        with rooms.inflight.open(len(body)) as hold:
            hold.grow(len(body))
            job = _text(metadata.get("x-crossrank-job")) or caller.job
            post = Post("traces", PROTOBUF, "", job, rooms.wall_ns(), body, only_job=caller.job)
            admitted, stored = rooms.decoders.run_here(len(body), partial(take, rooms, post, hold, caller))
            stored.result()
        rooms.deriver.wake()
        return otlp_reply(admitted, otlp_message(admitted))

    def _fail(self, context: grpc.ServicerContext, fault: CrossrankError) -> NoReturn:
        status = STATUS[type(fault)]
        code = _CODES[RPC_CODE[status]]
        wait_s = retry_after_s(fault.detail) if status == 503 else None
        details = [("grpc-status-details-bin", rpc_status(RPC_CODE[status], fault.message, wait_s).SerializeToString())]
        if wait_s is not None:
            self._rooms.counters.add("requests_overloaded", budget=str(fault.detail.get("budget", "other")))
            info = error_details_pb2.RetryInfo(retry_delay={"seconds": wait_s})
            details.append(("google.rpc.retryinfo-bin", info.SerializeToString()))
        self._count(code.name)
        context.set_trailing_metadata(details)
        context.abort(code, fault.message)
        raise AssertionError  # abort raises

    def _count(self, status: str) -> None:
        self._rooms.counters.add("requests", route="grpc", status=status)


def _text(value: str | bytes | None) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value or ""
