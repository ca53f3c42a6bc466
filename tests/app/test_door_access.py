"""Who may do what: every route x every scope x own, other and no job, straight from the routers, not from a list kept by hand."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from crossrank.api.access import NEEDS
from crossrank.app import ROUTERS, build_api
from crossrank.auth.tokens import TOKENS_FILE, create_token
from crossrank.commands.line_batches import Batch
from crossrank.commands.poster import Poster
from tests.support.inprocess import InProcess

OWN, OTHER = "team/own", "team/other"
NDJSON = "application/x-ndjson"
BUILT_IN = {("GET", path) for path in ("/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc")}
ROUTES = sorted({(method, route.path) for router in ROUTERS for route in router.routes for method in route.methods} | BUILT_IN)
SCOPES = ("ingest", "read", "admin")
ALLOWED = {"open": set(SCOPES), "ingest": {"ingest", "admin"}, "read": {"read", "admin"}, "admin": {"admin"}}


def line(job: str, serial: int) -> bytes:
    return json.dumps(
        {"job": job, "rank": 0, "name": "a", "start_ns": 10**18, "end_ns": 10**18 + 5, "span_id": f"{serial:016x}"}
    ).encode()


class Guarded(InProcess):
    """The service with a token for each scope, for all jobs and for one."""

    def __init__(self, folder: Path) -> None:
        self.tokens = {(scope, job): create_token(folder, scope, job, 0)[1] for scope in SCOPES for job in (None, OWN)}
        super().__init__(folder)

    def ask(self, method: str, path: str, token: str | None, body: bytes | None = None, content_type: str = NDJSON):
        headers = {"Content-Type": content_type} if body is not None else {}
        return self.request(method, path, content=body, headers=headers | ({"Authorization": f"Bearer {token}"} if token else {}))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("data")) as running:
        fill(running)
        yield running


def fill(service: Guarded) -> None:
    for serial, job in enumerate((OWN, OTHER), 1):
        assert service.ask("POST", "/v1/events", service.tokens["admin", None], line(job, serial)).status_code == 200


def address(path: str, job: str) -> str:
    return re.sub(
        r"\{(\w+)(:path)?\}", lambda m: {"job": job, "step": "0", "trace_id": "ab" * 16, "path": "index.html"}.get(m[1], "0"), path
    )


def body_of(method: str, path: str) -> tuple[bytes | None, str]:
    if path.endswith("/topology"):
        return b'{"world_size": 1}', "application/json"
    if path == "/v1/traces":
        return b"{}", "application/json"
    return (b"", NDJSON) if method == "POST" else (None, "")


def test_every_route_has_exactly_one_declared_scope() -> None:
    assert sorted(NEEDS) == ROUTES


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda v: v)
def test_the_matrix(service: Guarded, method: str, path: str) -> None:
    need = NEEDS[method, path]
    for job in (OWN, OTHER):
        url, body = address(path, job), body_of(method, path)
        assert service.ask(method, url, None, *body).status_code == (200 if need == "open" else 401), "no token"
        for (scope, bound), token in service.tokens.items():
            status = service.ask(method, url, token, *body).status_code
            where = (scope, bound, job)
            if scope not in ALLOWED[need]:
                assert status == 403, where
            elif bound is not None and "{job" in path and job != bound:
                assert status == 404, where
            elif bound is not None and path == "/metrics":
                assert status == 403, where
            else:
                assert status not in (401, 403, 500, 503), where
    fill(service)  # what DELETE removed


def test_another_job_is_answered_exactly_as_none(service: Guarded) -> None:
    token = service.tokens["admin", OWN]
    for method, path in ROUTES:
        if "{job" in path:
            answers = [service.ask(method, address(path, job), token, *body_of(method, path)) for job in (OTHER, "team/nobody")]
            one, none = (a.text.replace(job, "*") for a, job in zip(answers, (OTHER, "team/nobody"), strict=True))
            assert (one, answers[0].status_code) == (none, 404)
    missing = service.ask("GET", "/v1/jobs/team/nobody", service.tokens["read", None])
    assert missing.json() == service.ask("GET", "/v1/jobs/team/nobody", service.tokens["read", OWN]).json()


def test_the_list_of_jobs_shows_the_own_one(service: Guarded) -> None:
    names = lambda token: {j["job"] for j in service.ask("GET", "/v1/jobs", token).json()["jobs"]}  # noqa: E731
    assert names(service.tokens["read", OWN]) == {OWN}
    assert names(service.tokens["read", None]) >= {OWN, OTHER}


def test_events_of_another_job_are_refused_one_by_one(tmp_path: Path) -> None:
    lines = [line(OWN, 1), b'{"job":"team/other","rank":-1}', line(OTHER, 2), b"nonsense", line(OWN, 3), line(OTHER, 4)]
    nameless = json.dumps({"rank": 0, "name": "n", "start_ns": 10**18, "end_ns": 10**18 + 1, "span_id": "09" * 8}).encode()
    with Guarded(tmp_path) as service:
        token = service.tokens["ingest", OWN]
        receipt = service.ask("POST", "/v1/events", token, b"\n".join(lines)).json()
        assert (receipt["accepted"], receipt["reasons"].get("other_job")) == (2, 2)
        refused = {e["index"]: e["reason"] for e in receipt["errors"]}
        assert {i for i, reason in refused.items() if reason == "other_job"} == {2, 5}
        assert set(refused) == {1, 2, 3, 5}
        assert service.ask("POST", "/v1/events", token, nameless).json()["accepted"] == 1
        assert OTHER not in {e.job for e in service.rooms.store.jobs()}
    service = InProcess(tmp_path)  # a replay of the log refuses the same events again
    with service:
        assert {e.job for e in service.rooms.store.jobs()} == {OWN}
        assert service.rooms.store.tallies(OWN)["accepted"] == 3


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer crossrank_00000000_" + "A" * 43,
        "Basic dXNlcjpwYXNz",
        "Bearer crossrank_x_y",
        "Bearer \xe9\xe8",
    ],
)
def test_what_is_no_token(service: Guarded, header: str) -> None:
    answer = service.request("GET", "/v1/jobs", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json()["error"]) == {"code", "message", "detail"}


def test_a_right_id_with_a_wrong_secret(service: Guarded) -> None:
    token = service.tokens["admin", None]
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert service.ask("GET", "/v1/jobs", wrong).status_code == 401


def test_a_path_that_only_contains_another_route_is_not_that_route(service: Guarded) -> None:
    token = service.tokens["ingest", None]
    for path in ("/v1/jobs/v1/events", "/v1/events/../jobs", "/v1/jobs?x=/v1/events", "/v1/jobs/%2Fv1%2Ftraces"):
        assert service.ask("GET", path, token).status_code in (403, 404), path
    assert service.ask("POST", "/v1/jobs/x/v1/events/derive", token, b"").status_code == 403


def test_secrets_are_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with Guarded(tmp_path) as service:
        shown = []
        for token in service.tokens.values():
            secret = token.split("_", 2)[2]
            for method, path in (
                ("GET", "/metrics"),
                ("GET", "/v1/jobs"),
                ("DELETE", f"/v1/jobs/{OTHER}"),
                ("GET", "/openapi.json"),
            ):
                shown.append(service.ask(method, path, token).text)
            shown.append(service.ask("GET", "/v1/jobs", token + "x").text)
            shown.append(service.ask("POST", "/v1/traces", token, b"\xff", "application/x-protobuf").text)
        for token in service.tokens.values():
            secret = token.split("_", 2)[2]
            assert all(secret not in text for text in [*shown, caplog.text])
            assert secret not in (tmp_path / TOKENS_FILE).read_text()
    assert (tmp_path / TOKENS_FILE).stat().st_mode & 0o077 == 0


def test_no_cookies_no_cors_and_safe_headers(service: Guarded) -> None:
    origin = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for method, path in (
        ("GET", "/v1/jobs"),
        ("OPTIONS", "/v1/events"),
        ("POST", "/v1/traces"),
        ("GET", "/healthz"),
        ("GET", "/no"),
    ):
        answer = service.request(method, path, headers=origin)
        assert not [h for h in answer.headers if h.startswith("access-control") or h == "set-cookie"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert ";" not in answer.headers["content-type"]
    assert service.request("OPTIONS", "/v1/events", headers=origin).status_code == 405


def test_a_job_in_a_header_may_have_any_letters(tmp_path: Path) -> None:
    name = "jób ☃"
    line_of_no_job = json.dumps({"rank": 0, "name": "n", "start_ns": 10**18, "end_ns": 10**18 + 1, "span_id": "09" * 8}).encode()
    with InProcess(tmp_path) as service:

        def answer(request: httpx.Request) -> httpx.Response:
            given = service.request("POST", request.url.path, content=request.read(), headers=request.headers)
            return httpx.Response(given.status_code, content=given.content)

        client = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
        tally = Poster(client, "http://test", name, patience_s=0).post(Batch("file", 1, 1, 0, len(line_of_no_job), line_of_no_job))
        assert tally.accepted == 1
        assert [e.job for e in service.rooms.store.jobs()] == [name]


def test_a_token_over_its_rate_waits_and_nobody_else_does(tmp_path: Path) -> None:
    with Guarded(tmp_path) as service:
        rates = service.rooms.guard._rates
        rates._per_s = {"token_bytes": 1e9, "token_events": 0.01}  # two hundredths of an event are free, the second has to wait
        slow, other = service.tokens["ingest", None], service.tokens["ingest", OWN]
        assert service.ask("POST", "/v1/events", slow, line(OWN, 1)).status_code == 200
        answer = service.ask("POST", "/v1/events", slow, line(OWN, 2))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert answer.json()["error"]["detail"]["budget"] == "token_events"
        assert service.ask("POST", "/v1/events", other, line(OWN, 3)).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:4318", 200), ("localhost", 200), ("[::1]:4318", 200), ("10.1.2.3", 200), ("evil.example", 403), ("a.b:80", 403)],
)
def test_without_tokens_only_local_names_are_answered(tmp_path: Path, host: str, status: int) -> None:
    with InProcess(tmp_path) as service:
        service.api = build_api(service.rooms, only_local_names=True)
        assert service.request("GET", "/v1/jobs", headers={"Host": host}).status_code == status
        assert service.request("DELETE", "/v1/jobs/x", headers={"Host": host}).status_code == (404 if status == 200 else 403)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "crossrank.cli", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def test_a_start_beyond_loopback_is_refused_with_the_way_out(tmp_path: Path) -> None:
    done = run("serve", "--data", str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "crossrank token create" in done.stderr
    assert "--insecure" in done.stderr
    for options in (["--tls-cert", "nowhere.pem"], ["--tls-cert", "nowhere.pem", "--tls-key", "nowhere.pem"]):
        assert run("serve", "--data", str(tmp_path), *options).returncode == 2


def test_making_listing_and_revoking_tokens(tmp_path: Path) -> None:
    made = run("token", "create", "--scope", "read", "--job", "llm", "--data", str(tmp_path))
    assert re.fullmatch(r"crossrank_[0-9a-f]{8}_[\w-]{43}\n", made.stdout)
    identifier = made.stdout.split("_")[1]
    listed = run("token", "list", "--data", str(tmp_path)).stdout
    assert identifier in listed
    assert "job llm" in listed
    assert made.stdout.strip() not in listed
    assert run("token", "revoke", identifier, "--data", str(tmp_path)).returncode == 0
    assert run("token", "revoke", identifier, "--data", str(tmp_path)).returncode == 4
    assert run("token", "create", "--scope", "all", "--data", str(tmp_path)).returncode == 2
