"""The only mapping from faults to HTTP.

Native routes answer `{error: {code, message, detail}}`; OTLP routes answer google.rpc.Status in the request's encoding, because
that is what their clients read. Overload is 503 with Retry-After (whole seconds, at most 5), never 429: the stock Python exporter
drops a batch on 429 and sends it again on 503. Bad input is never a 500 and nothing is ever a redirect.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from google.rpc import status_pb2
from starlette.exceptions import HTTPException
from starlette.responses import Response

from crossrank.api.reply import JsonReply
from crossrank.errors import (
    BadParameter,
    BodyTooLarge,
    CrossrankError,
    NotFound,
    Overloaded,
    StoreUnavailable,
    UndecodableBody,
    UnsupportedType,
)

log = logging.getLogger(__name__)
RETRY_AFTER_S: Final = 1
STATUS: Final[dict[type[CrossrankError], int]] = {
    UndecodableBody: 400,
    BadParameter: 400,
    NotFound: 404,
    BodyTooLarge: 413,
    UnsupportedType: 415,
    Overloaded: 503,
    StoreUnavailable: 503,
}
# google.rpc.Code for the status codes we use
RPC_CODE: Final = {400: 3, 404: 5, 405: 12, 413: 8, 415: 3, 503: 14, 500: 13}
OTLP_PATH: Final = "/v1/traces"
PROTOBUF: Final = "application/x-protobuf"


def install(app: FastAPI) -> None:
    """Registers the handlers."""
    app.add_exception_handler(CrossrankError, _on_fault)
    app.add_exception_handler(RequestValidationError, _on_bad_parameter)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)


def _on_fault(request: Request, error: Exception) -> Response:
    assert isinstance(error, CrossrankError)
    status = STATUS[type(error)]
    if isinstance(error, Overloaded):
        request.app.state.rooms.counters.add("requests_overloaded", budget=str(error.detail.get("budget", "other")))
    return answer_error(request, status, error.code, error.message, error.detail)


def _on_bad_parameter(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = str(first["loc"][-1]) if first["loc"] else ""
    return answer_error(request, 400, BadParameter.code, f"{field}: {first['msg']}", {"field": field})


def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    messages = {404: f"no such address: {request.url.path}", 405: f"{request.method} is not possible on {request.url.path}"}
    reply = answer_error(request, error.status_code, "http", messages.get(error.status_code, str(error.detail)), {})
    reply.headers.update(error.headers or {})
    return reply


def _on_bug(request: Request, error: Exception) -> Response:
    log.error("unexpected fault in %s %s", request.method, request.url.path, exc_info=error)
    return answer_error(request, 500, "internal", "a fault of the service; its log says more", {})


def answer_error(request: Request, status: int, code: str, message: str, detail: dict[str, Any]) -> Response:
    """An error in the shape that the route's clients read."""
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {}
    if request.url.path != OTLP_PATH:
        body = {"error": {"code": code, "message": message, "detail": detail}}
        return JsonReply(body, status_code=status, headers=headers)
    rpc = status_pb2.Status(code=RPC_CODE.get(status, 2), message=message)
    if media_type(request) == PROTOBUF:
        return Response(rpc.SerializeToString(), status_code=status, media_type=PROTOBUF, headers=headers)
    return JsonReply({"code": rpc.code, "message": message}, status_code=status, headers=headers)


def media_type(request: Request) -> str:
    """The request's bare content type in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()
