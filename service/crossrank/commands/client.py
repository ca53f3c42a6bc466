"""The service over HTTP: one reply in, one answer or one fault out, and never more of a reply than the cap.

A fault of the service comes back as the same class of `errors` that it was there, so that callers do not care which side
of the wire they are on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from crossrank import errors
from crossrank.commands.source import Params

REPLY_BYTES: Final = 256 << 20  # an answer for 10,000 ranks is some 10 MB; beyond the cap something is wrong
CONNECT_S: Final = 5.0
READ_S: Final = 120.0  # a first derivation of a large job takes a while

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_FAULTS: Final[dict[str, type[errors.CrossrankError]]] = {
    fault.code: fault
    for fault in (
        errors.UndecodableBody,
        errors.BodyTooLarge,
        errors.UnsupportedType,
        errors.BadParameter,
        errors.NotFound,
        errors.Overloaded,
        errors.StoreUnavailable,
        errors.Unauthenticated,
        errors.Forbidden,
    )
}
_BY_STATUS: Final[dict[int, type[errors.CrossrankError]]] = {
    404: errors.NotFound,
    413: errors.BodyTooLarge,
    415: errors.UnsupportedType,
    503: errors.Overloaded,
}


def base_url(url: str) -> str:
    """The address without a trailing slash, with `http://` where no scheme was given. Raises BadParameter."""
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        usable = parts.scheme in {"http", "https"} and parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise errors.BadParameter(f"--url {url}: not an address such as http://127.0.0.1:4318", field="url")
    return full.rstrip("/")


def connect(url: str, connections: int = 4) -> httpx.Client:
    """A client of the service at `url`, with the token of CROSSRANK_TOKEN if there is one.

    Proxies of the environment are not used for this machine's own services.
    """
    base = base_url(url)
    token = os.environ.get("CROSSRANK_TOKEN", "")
    return httpx.Client(
        base_url=base,
        timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        trust_env=urlsplit(base).hostname not in _LOOPBACK,
        headers={"user-agent": "crossrank", **({"authorization": f"Bearer {token}"} if token else {})},
    )


@contextmanager
def reaching(url: str) -> Iterator[None]:
    """Turns what can go wrong on the way to the service into one Unreachable that says what to do."""
    try:
        yield
    except httpx.ConnectError as fault:
        raise errors.Unreachable(
            f"no service answers at {url} ({fault}); start one with `crossrank serve`, or give its --url"
        ) from fault
    except httpx.TimeoutException as fault:
        raise errors.Unreachable(f"the service at {url} did not answer in time ({type(fault).__name__})") from fault
    except httpx.HTTPError as fault:
        raise errors.Unreachable(f"the connection to {url} broke: {fault or type(fault).__name__}") from fault


def fault_of(status: int, body: bytes, where: str) -> errors.CrossrankError:
    """The fault that an answer of the service states in `{error: {code, message, detail}}`."""
    try:
        stated = json.loads(body)["error"]
        code, message, detail = str(stated["code"]), str(stated["message"]), stated.get("detail") or {}
    except (ValueError, KeyError, TypeError, AttributeError):
        text = body[:200].decode("utf-8", "replace").strip()
        return _BY_STATUS.get(status, errors.Refused)(f"{where}: HTTP {status} {text}".rstrip(), status=status)
    kind = _FAULTS.get(code) or _BY_STATUS.get(status, errors.Refused)
    fault = kind(message)
    fault.detail = detail if isinstance(detail, dict) else {}
    return fault


def restated(fault: errors.CrossrankError, message: str) -> errors.CrossrankError:
    """The same fault with a message that says more."""
    again = type(fault)(message)
    again.detail = fault.detail
    return again


def read_capped(response: httpx.Response, cap: int = REPLY_BYTES) -> bytes:
    """The body of a streamed response. Raises Refused when it is larger than the cap."""
    parts, total = [], 0
    for part in response.iter_bytes():
        total += len(part)
        if total > cap:
            raise errors.Refused(f"the answer is larger than {cap >> 20} MiB; ask for fewer steps with --from and --to")
        parts.append(part)
    return b"".join(parts)


class HttpAnswers:
    """Answers of a running service. Implements `source.Answers`."""

    def __init__(self, url: str, client: httpx.Client | None = None) -> None:
        self.url = base_url(url)
        self.client = client or connect(self.url)

    def get(self, path: str, params: Params) -> dict[str, Any]:
        """The JSON answer of `GET path`. Raises the fault the service states, or Unreachable."""
        return self._ask("GET", path, params)

    def post(self, path: str, params: Params) -> dict[str, Any]:
        """The JSON answer of `POST path` without a body. Raises as `get`."""
        return self._ask("POST", path, params)

    def ask(self, path: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON answer of `POST path` with a JSON body. Raises as `get`."""
        return self._ask("POST", path, {}, json.dumps(question).encode())

    def delete(self, path: str) -> dict[str, Any]:
        """The JSON answer of `DELETE path`. Raises as `get`."""
        return self._ask("DELETE", path, {})

    @contextmanager
    def stream(self, path: str, params: Params) -> Iterator[httpx.Response]:
        """A successful response to `GET path` whose body has not been read yet. Raises as `get`."""
        with reaching(self.url), self.client.stream("GET", path, params=_query(params)) as response:
            if response.status_code != httpx.codes.OK:
                raise fault_of(response.status_code, read_capped(response), f"GET {path}")
            yield response

    def download(self, path: str, params: Params) -> bytes:
        """The body of the answer to `GET path`, up to the cap. Raises as `get`."""
        with self.stream(path, params) as response:
            return read_capped(response)

    def close(self) -> None:
        """Closes the connections."""
        self.client.close()

    def _ask(self, method: str, path: str, params: Params, body: bytes | None = None) -> dict[str, Any]:
        headers = {"content-type": "application/json"} if body is not None else {}
        with (
            reaching(self.url),
            self.client.stream(method, path, params=_query(params), content=body, headers=headers) as response,
        ):
            reply = read_capped(response)
        if response.status_code != httpx.codes.OK:
            raise fault_of(response.status_code, reply, f"{method} {path}")
        try:
            answer = json.loads(reply)
        except ValueError as fault:
            raise errors.Refused(f"{self.url}{path} did not answer with JSON; is it a crossrank service?") from fault
        if not isinstance(answer, dict):
            raise errors.Refused(f"{self.url}{path} answered with a {type(answer).__name__}; is it a crossrank service?")
        return answer


def _query(params: Params) -> dict[str, str]:
    return {name: str(value) for name, value in params.items()}
