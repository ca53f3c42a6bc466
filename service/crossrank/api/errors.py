"""The only mapping from faults to HTTP.

Native routes answer `{error: {code, message, detail}}`; OTLP routes answer google.rpc.Status in the request's encoding, Jaeger's
`{errors: [{code, msg}]}`, because that is what their clients read. Overload is 503 with Retry-After (whole seconds, at most 5), never 429: the stock Python exporter
drops a batch on 429 and sends it again on 503. Bad input is never a 500 and nothing is ever a redirect.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from google.rpc import error_details_pb2, status_pb2
from starlette.exceptions import HTTPException
from starlette.responses import Response

from crossrank.api.reply import JsonReply
from crossrank.errors import (
    BadParameter,
    BodyTooLarge,
    CrossrankError,
    Forbidden,
    NotFound,
    Overloaded,
    StoreUnavailable,
    TooSlow,
    Unauthenticated,
    UndecodableBody,
    UnsupportedType,
)
from crossrank.exporters.jaeger import envelope

log = logging.getLogger(__name__)
_RETRY_AFTER_S: Final = 1
STATUS: Final[dict[type[CrossrankError], int]] = {
    UndecodableBody: 400,
    BadParameter: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    TooSlow: 408,
    BodyTooLarge: 413,
    UnsupportedType: 415,
    Overloaded: 503,
    StoreUnavailable: 503,
}
# google.rpc.Code for the status codes we use
RPC_CODE: Final = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 408: 4, 413: 8, 415: 3, 503: 14, 500: 13}
OTLP_PATHS: Final = frozenset({"/v1/traces", "/v1/metrics", "/v1/logs", "/v1development/profiles"})  # the last three only to say no
PROTOBUF: Final = "application/x-protobuf"
JAEGER_PREFIX: Final = "/api/"


def install(app: FastAPI) -> None:
    """Registers the handlers."""
    for kind in (CrossrankError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer_fault)


def answer_fault(request: Request, fault: Exception) -> Response:
    """The answer to any fault of a request."""
    match fault:
        case CrossrankError():
            if isinstance(fault, Overloaded):
                request.app.state.rooms.counters.add("requests_overloaded", budget=str(fault.detail.get("budget", "other")))
            return answer_error(request, STATUS[type(fault)], fault.code, fault.message, fault.detail)
        case RequestValidationError():
            first = fault.errors()[0]
            field = str(first["loc"][-1]) if first["loc"] else ""
            return answer_error(request, 400, BadParameter.code, f"{field}: {first['msg']}", {"field": field})
        case HTTPException():
            messages = {404: f"no such address: {request.url.path}", 405: f"{request.method} is not possible on {request.url.path}"}
            reply = answer_error(request, fault.status_code, "http", messages.get(fault.status_code, str(fault.detail)), {})
            reply.headers.update(fault.headers or {})
            return reply
        case _:
            log.error("unexpected fault in %s %s", request.method, request.url.path, exc_info=fault)
            return answer_error(request, 500, "internal", "a fault of the service; its log says more", {})


def answer_error(request: Request, status: int, code: str, message: str, detail: dict[str, Any]) -> Response:
    """An error in the shape that the route's clients read."""
    headers = {}
    wait_s = retry_after_s(detail) if status == 503 else None
    if wait_s is not None:
        headers["Retry-After"] = str(wait_s)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if request.url.path.startswith(JAEGER_PREFIX):
        return JsonReply(envelope(None, errors=[{"code": status, "msg": message}]), status_code=status, headers=headers)
    if request.url.path not in OTLP_PATHS:
        body = {"error": {"code": code, "message": message, "detail": detail}}
        return JsonReply(body, status_code=status, headers=headers)
    if media_type(request) == PROTOBUF:
        rpc = rpc_status(RPC_CODE.get(status, 2), message, wait_s)
        return Response(rpc.SerializeToString(), status_code=status, media_type=PROTOBUF, headers=headers)
    return JsonReply({"code": RPC_CODE.get(status, 2), "message": message}, status_code=status, headers=headers)


def rpc_status(code: int, message: str, wait_s: int | None) -> status_pb2.Status:
    """google.rpc.Status; bad input says what is bad, overload when to come again."""
    status = status_pb2.Status(code=code, message=message)
    if code == RPC_CODE[400]:
        bad = error_details_pb2.BadRequest(field_violations=[{"field": "body", "description": message}])
        status.details.add().Pack(bad)
    if wait_s is not None:
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay={"seconds": wait_s}))
    return status


def retry_after_s(detail: dict[str, Any]) -> int:
    """Whole seconds after which trying again makes sense, at most 5: stock exporters give up when asked for more."""
    return int(detail.get("retry_after_s", _RETRY_AFTER_S))


def media_type(request: Request) -> str:
    """The request's bare content type in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
