"""OTLP receiver conformance at the door: each rule of the checklist that shows only over HTTP or gRPC, by its number.

Rules about what is inside a body are in tests/unit/test_ingest_otlp_rules.py. docs/formats.md says where we choose or deviate.
"""

import asyncio
import gzip
import json
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import zstandard
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from crossrank.api import errors as api_errors
from crossrank.api.grpc_door import METHOD, GrpcDoor
from crossrank.errors import Overloaded, StoreUnavailable
from crossrank.limits import Limits
from crossrank.serving import KEEP_ALIVE_S
from crossrank.settings import Settings
from tests.support.inprocess import InProcess

PROTOBUF, JSON = "application/x-protobuf", "application/json"
CAP = 1 << 20
ENCODINGS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress, "identity": bytes, "": bytes}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    with InProcess(tmp_path_factory.mktemp("data"), Limits(body_bytes=CAP)) as running:
        yield running


@pytest.fixture(scope="module")
def channel(service: InProcess) -> Iterator[grpc.Channel]:
    door = GrpcDoor(service.rooms, "127.0.0.1:0", certificate=None)
    with grpc.insecure_channel(f"127.0.0.1:{door.port}", options=[("grpc.max_send_message_length", 8 << 20)]) as open_channel:
        yield open_channel
    door.stop(5)()


def request_of(spans: int = 1, job: str = "rules", first: int = 1, name: str = "s") -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="crossrank.job").value.string_value = job
    resource.resource.attributes.add(key="crossrank.rank").value.int_value = 0
    held = resource.scope_spans.add().spans
    for i in range(first, first + spans):
        held.add(
            name=name, trace_id=b"\1" * 16, span_id=i.to_bytes(8, "big"), start_time_unix_nano=10**18, end_time_unix_nano=10**18 + 1
        )
    return request


def json_of(request: ExportTraceServiceRequest) -> bytes:
    (resource,) = request.resource_spans
    spans = [
        {
            "name": s.name,
            "traceId": s.trace_id.hex(),
            "spanId": s.span_id.hex(),
            "startTimeUnixNano": str(s.start_time_unix_nano),
            "endTimeUnixNano": str(s.end_time_unix_nano),
        }
        for s in resource.scope_spans[0].spans
    ]
    said = resource.resource.attributes
    attributes = [{"key": "crossrank.job", "value": {"stringValue": said[0].value.string_value}}]
    attributes += [{"key": a.key, "value": {"intValue": str(a.value.int_value)}} for a in said[1:]]
    return json.dumps({"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": spans}]}]}).encode()


def encoded(request: ExportTraceServiceRequest, kind: str) -> bytes:
    return request.SerializeToString() if kind == PROTOBUF else json_of(request)


def post(
    service: InProcess, body: Any, kind: str | None = PROTOBUF, encoding: str = "", path: str = "/v1/traces", method: str = "POST"
):
    headers = ({"Content-Type": kind} if kind is not None else {}) | ({"Content-Encoding": encoding} if encoding else {})
    return service.request(method, path, content=body, headers=headers)


def status_of(answer: httpx.Response) -> tuple[int, str]:
    """(code, message) of google.rpc.Status in the encoding the answer says it has."""
    if answer.headers["content-type"] == PROTOBUF:
        status = status_pb2.Status.FromString(answer.content)
        return status.code, status.message
    assert answer.headers["content-type"] == JSON
    return answer.json()["code"], answer.json()["message"]


def export(channel: grpc.Channel, body: bytes, **options: Any) -> bytes:
    return channel.unary_unary(METHOD)(body, timeout=20, **options)


def failed(channel: grpc.Channel, body: bytes, **options: Any) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        export(channel, body, **options)
    return caught.value


def trailers(fault: grpc.RpcError) -> dict[str, bytes]:
    return dict(fault.trailing_metadata() or ())


# --- transport and negotiation ---


@pytest.mark.parametrize("path", ["/v1/metrics", "/v1/logs", "/v1development/profiles"])
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_rule_01_one_path_and_the_unused_signals_are_404(service, path, kind):
    assert post(service, request_of().SerializeToString()).status_code == 200
    answer = post(service, b"", kind, path=path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == kind
    assert status_of(answer)[0] == 5


def test_rule_02_ports():
    assert Settings.model_fields["port"].default == 4318
    from crossrank.app import GRPC_PORT

    assert GRPC_PORT == 4317


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "APPLICATION/X-PROTOBUF", "application/x-protobuf ; v=1"]
)
def test_rule_03_parameters_and_case_and_the_bare_type_comes_back(service, kind):
    bare = kind.partition(";")[0].strip().lower()
    for body, status in ((encoded(request_of(), bare), 200), (b"\xff\xff", 400)):
        answer = post(service, body, kind)
        assert (answer.status_code, answer.headers["content-type"]) == (status, bare)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_rule_04_the_reply_has_the_encoding_of_the_request(service, kind):
    for body, status in ((encoded(request_of(), kind), 200), (b"\xff\xff\xff", 400), (b" " * (CAP + 1), 413)):
        answer = post(service, body, kind)
        assert (answer.status_code, answer.headers["content-type"]) == (status, kind)


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/octet-stream", "application/grpc", "multipart/form-data"])
def test_rule_05_missing_or_other_content_type(service, kind):
    answer = post(service, request_of().SerializeToString(), kind)
    assert answer.status_code == 415
    assert status_of(answer)[1]


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_rule_06_only_post_and_never_a_redirect(service, method):
    answer = post(service, None, PROTOBUF, method=method)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    for path in ("/v1/traces/", "//v1/traces", "/V1/traces"):
        assert post(service, b"", path=path).status_code in (404, 405)


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rule_07_and_08_compressions(service, encoding, kind):
    body = ENCODINGS[encoding](encoded(request_of(job=f"c-{encoding}-{kind[-4:]}"), kind))
    for written in {encoding, encoding.upper()}:
        assert post(service, body, kind, written).status_code == 200
    assert service.get(f"/v1/jobs/c-{encoding}-{kind[-4:]}")["events"]["stored"] == 1


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_rule_09_bad_compressed_bytes(service, encoding, kind):
    whole = ENCODINGS[encoding](encoded(request_of(), kind))
    for body in (b"junk", whole[:-1], b"\x1f\x8b"):
        answer = post(service, body, kind, encoding)
        assert (answer.status_code, status_of(answer)[0]) == (400, 3)


def test_rule_10_unknown_content_encoding(service):
    for encoding in ("br", "snappy", "lz4", "gzip, gzip"):
        assert post(service, b"x", PROTOBUF, encoding).status_code == 415


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_rule_11_all_members_and_frames(service, encoding):
    body, pack = request_of(3, job=f"members-{encoding}").SerializeToString(), ENCODINGS[encoding]
    assert post(service, pack(body[:7]) + pack(body[7:]), PROTOBUF, encoding).status_code == 200
    assert service.get(f"/v1/jobs/members-{encoding}")["events"]["stored"] == 3


def test_rule_12_replies_are_not_compressed(service):
    answer = service.request("POST", "/v1/traces", content=b"{}", headers={"Content-Type": JSON, "Accept-Encoding": "gzip, zstd"})
    assert "content-encoding" not in answer.headers


def test_rule_13_keep_alive_outlasts_the_clients():
    assert KEEP_ALIVE_S >= 60


def test_rule_14_no_cors(service):
    answer = service.request("POST", "/v1/traces", content=b"{}", headers={"Content-Type": JSON, "Origin": "http://a.example"})
    assert not [h for h in answer.headers if h.startswith("access-control")]


def test_rule_15_many_posts_at_once_in_any_order(service):
    bodies = [request_of(5, job="parallel", first=1 + 5 * i).SerializeToString() for i in range(24)]

    async def all_at_once() -> list[int]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(service.api), base_url="http://test") as client:
            posts = [client.post("/v1/traces", content=b, headers={"Content-Type": PROTOBUF}) for b in bodies[::-1]]
            return [a.status_code for a in await asyncio.gather(*posts)]

    assert asyncio.run(all_at_once()) == [200] * 24
    assert service.get("/v1/jobs/parallel")["events"]["stored"] == 120


# --- sizes ---


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
@pytest.mark.parametrize("encoding", ["", "gzip", "zstd", "deflate"])
@pytest.mark.parametrize("chunked", [False, True])
def test_rule_17_and_18_exactly_the_cap_passes_and_one_more_is_413(service, encoding, kind, chunked):
    for size, status in ((CAP, 200), (CAP + 1, 413)):
        body = ENCODINGS[encoding](json_of(request_of()).ljust(size, b" ") if kind == JSON else _filled_up(size))
        sent = _chunks(body) if chunked else body
        answer = post(service, sent, kind, encoding)
        assert answer.status_code == status, answer.text
        if status == 413:
            assert status_of(answer)[0] == 8


def _filled_up(size: int) -> bytes:
    """A valid request of this size: an unknown field of zeros, which every reader skips, fills it up."""
    body = request_of().SerializeToString()
    rest = size - len(body) - 5  # tag, and four bytes that say how long
    length = bytes([rest & 0x7F | 0x80, rest >> 7 & 0x7F | 0x80, rest >> 14 & 0x7F | 0x80, rest >> 21])
    return body + b"\x7a" + length + bytes(rest)


async def _chunks(body: bytes):
    for at in range(0, len(body), 10_000):
        yield body[at : at + 10_000]


def test_rule_17_the_default_cap():
    assert Limits().body_bytes == 64 << 20


def test_rule_19_the_reply_stays_small_however_much_is_wrong(service):
    request = request_of(20_000)
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.span_id = b"short"
    answer = post(service, request.SerializeToString())
    assert answer.status_code == 200
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 20_000
    assert len(answer.content) < 5000


def test_rule_20_a_grpc_message_above_the_cap(channel):
    assert export(channel, _filled_up(CAP)) == b""
    fault = failed(channel, _filled_up(CAP + 1))
    assert fault.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "google.rpc.retryinfo-bin" not in trailers(fault)
    bomb = failed(channel, bytes(CAP + 1), compression=grpc.Compression.Gzip)
    assert bomb.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


# --- success, partial, failure ---


def test_rule_21_full_success(service, channel):
    assert post(service, request_of().SerializeToString()).content == b""
    assert post(service, json_of(request_of()), JSON).content == b"{}"
    assert export(channel, request_of().SerializeToString()) == b""


def test_rule_22_empty_requests(service, channel):
    empty = ExportTraceServiceRequest()
    empty.resource_spans.add()
    for body in (b"", empty.SerializeToString()):
        answer = post(service, body)
        assert (answer.status_code, answer.content) == (200, b"")
        assert export(channel, body) == b""
    for body, status in ((b"{}", 200), (b'{"resourceSpans":[{}]}', 200), (b"", 400), (b"[]", 400)):
        assert post(service, body, JSON).status_code == status


def one_bad() -> ExportTraceServiceRequest:
    request = request_of(4, job="partial")
    request.resource_spans[0].scope_spans[0].spans[2].span_id = b""
    return request


def test_rule_23_partial_success(service, channel):
    for content in (post(service, one_bad().SerializeToString()).content, export(channel, one_bad().SerializeToString())):
        partial = ExportTraceServiceResponse.FromString(content).partial_success
        assert partial.rejected_spans == 1
        assert "invalid_span_id" in partial.error_message
    answer = post(service, json_of(one_bad()), JSON)
    assert answer.status_code == 200
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert service.get("/v1/jobs/partial")["events"]["stored"] == 3


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_rule_24_a_warning_rejects_nothing(service, kind):
    request = request_of(job="no rank")
    del request.resource_spans[0].resource.attributes[1]
    answer = post(service, encoded(request, kind), kind)
    if kind == JSON:
        partial = answer.json()["partialSuccess"]
        count, message = int(partial["rejectedSpans"]), partial["errorMessage"]
    else:
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
        count, message = partial.rejected_spans, partial.error_message
    assert count == 0
    assert "rank" in message


def test_rule_25_all_spans_invalid(service):
    request = request_of(2)
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.trace_id = bytes(16)
    answer = post(service, request.SerializeToString())
    assert answer.status_code == 200
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == 2


def test_rule_26_error_bodies_say_what_is_bad(service):
    status = status_pb2.Status.FromString(post(service, b"\xff\xff\xff").content)
    assert status.code == 3
    (detail,) = status.details
    bad = error_details_pb2.BadRequest()
    assert detail.Unpack(bad)
    assert bad.field_violations[0].field == "body"


def refusing(service: InProcess, monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def refuse(*_: object) -> None:
        raise fault

    monkeypatch.setattr(type(service.rooms.store), "append", refuse)


@pytest.mark.parametrize("fault", [Overloaded("busy", budget="wal"), StoreUnavailable("the disk is full")], ids=lambda f: f.code)
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_rule_27_and_28_overload_and_a_full_disk_are_503_with_whole_seconds(service, monkeypatch, fault, kind):
    refusing(service, monkeypatch, fault)
    answer = post(service, encoded(request_of(), kind), kind)
    assert (answer.status_code, status_of(answer)[0]) == (503, 14)
    assert 1 <= int(answer.headers["retry-after"]) <= 5
    if kind == PROTOBUF:
        info = error_details_pb2.RetryInfo()
        assert any(d.Unpack(info) for d in status_pb2.Status.FromString(answer.content).details)


def test_rule_27_nothing_is_answered_429_or_3xx():
    assert not {429, 500, 501, 502, 504} & set(api_errors.STATUS.values())
    assert [s for s in api_errors.STATUS.values() if 300 <= s < 400] == []


def test_rule_29_a_resent_request_changes_nothing(service):
    body = request_of(7, job="again").SerializeToString()
    for _ in range(3):
        assert post(service, body).status_code == 200
    assert service.get("/v1/jobs/again")["events"]["stored"] == 7
    assert service.rooms.store.tallies("again") == {"accepted": 7, "duplicate": 14, "conflict": 0}


def test_rule_30_http_and_grpc_say_the_same():
    expected = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 503: "UNAVAILABLE"}
    names = {code.value[0]: code.name for code in grpc.StatusCode}
    assert {status: names[api_errors.RPC_CODE[status]] for status in expected} == expected


def test_rule_31_what_must_not_be_retried_is_not_retryable(channel):
    fault = failed(channel, b"\xff\xff\xff")
    assert fault.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert status_pb2.Status.FromString(trailers(fault)["grpc-status-details-bin"]).code == 3
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(METHOD.replace("trace", "metrics"))(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("fault", [Overloaded("busy", budget="wal"), StoreUnavailable("the disk is full")], ids=lambda f: f.code)
def test_rule_32_grpc_overload_says_when_to_come_again_in_both_places(service, channel, monkeypatch, fault):
    refusing(service, monkeypatch, fault)
    seen = failed(channel, request_of().SerializeToString())
    assert seen.code() is grpc.StatusCode.UNAVAILABLE
    info = error_details_pb2.RetryInfo.FromString(trailers(seen)["google.rpc.retryinfo-bin"])
    assert 1 <= info.retry_delay.seconds <= 5
    status = status_pb2.Status.FromString(trailers(seen)["grpc-status-details-bin"])
    inside = error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(inside)
    assert inside == info


def test_rule_33_a_fault_of_ours_is_500_and_internal_without_its_text(service, channel, monkeypatch):
    refusing(service, monkeypatch, RuntimeError("secret text"))
    for kind in (PROTOBUF, JSON):
        answer = post(service, encoded(request_of(), kind), kind)
        assert (answer.status_code, status_of(answer)[0]) == (500, 13)
        assert b"secret text" not in answer.content
    fault = failed(channel, request_of().SerializeToString())
    assert fault.code() is grpc.StatusCode.INTERNAL
    assert "secret text" not in fault.details()


def test_rule_54_grpc_and_http_store_the_same(service, channel):
    request = one_bad()
    replies = []
    for job, send in (("by-http", lambda b: post(service, b).content), ("by-grpc", lambda b: export(channel, b))):
        request.resource_spans[0].resource.attributes[0].value.string_value = job
        replies.append(send(request.SerializeToString()))
    assert replies[0] == replies[1]
    answers = [service.get(f"/v1/jobs/{job}/events")["events"] for job in ("by-http", "by-grpc")]
    plain = [[{k: v for k, v in e.items() if k not in ("job", "received_ns", "otel")} for e in events] for events in answers]
    assert plain[0] == plain[1]
    assert len(plain[0]) == 3
    assert service.rooms.store.rejects("by-http") == service.rooms.store.rejects("by-grpc")


def test_grpc_takes_parallel_calls(service, channel):
    ready = threading.Barrier(8)

    def send(i: int) -> bytes:
        ready.wait(20)
        return export(channel, request_of(3, job="grpc-parallel", first=1 + 3 * i).SerializeToString())

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(send, range(8))) == [b""] * 8
    assert service.get("/v1/jobs/grpc-parallel")["events"]["stored"] == 24


def test_grpc_asks_for_the_same_tokens(tmp_path: Path):
    from crossrank.auth.tokens import create_token

    _, ingest = create_token(tmp_path, "ingest", "mine", 0)
    _, read = create_token(tmp_path, "read", None, 0)
    with InProcess(tmp_path) as service:
        door = GrpcDoor(service.rooms, "127.0.0.1:0", certificate=None)
        with grpc.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            body = request_of(2, job="mine").SerializeToString()
            as_caller = lambda token: {"metadata": [("authorization", f"Bearer {token}")]}  # noqa: E731
            assert failed(channel, body).code() is grpc.StatusCode.UNAUTHENTICATED
            assert failed(channel, body, **as_caller(read)).code() is grpc.StatusCode.PERMISSION_DENIED
            assert export(channel, body, **as_caller(ingest)) == b""
            other = export(channel, request_of(2, job="other").SerializeToString(), **as_caller(ingest))
            assert ExportTraceServiceResponse.FromString(other).partial_success.rejected_spans == 2
        door.stop(5)()
        assert {e.job for e in service.rooms.store.jobs()} == {"mine"}
