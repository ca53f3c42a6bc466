"""What each address needs: one scope for every (method, path), written down here and nowhere else.

Addresses are matched as whole patterns by the router's own rules, never by a part of the path; a route that is not in the table
needs `admin`, and a test fails until it is. Health and documentation hold no job's data and are open.

A job's name may hold slashes and end like a question: `a/live`. Where its slashes are sent as %2F, they are part of the name
whatever follows; where they are sent as they are, the address is read as the longest question it can be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from crossrank.auth.guard import Caller, Need
from crossrank.errors import Forbidden, NotFound

_JOB: Final = "/v1/jobs/{job:path}"
_SLASH: Final = "\x1f"  # stands for %2F between here and the routes; no job has such a character
NEEDS: Final[dict[tuple[str, str], Need]] = {
    ("POST", "/v1/events"): "ingest",
    ("POST", "/v1/traces"): "ingest",
    ("POST", "/v1/import"): "ingest",
    ("POST", f"{_JOB}/topology"): "ingest",
    ("GET", "/v1/jobs"): "read",
    ("GET", _JOB): "read",
    ("GET", f"{_JOB}/clocks"): "read",
    ("GET", f"{_JOB}/steps"): "read",
    ("GET", f"{_JOB}/steps/{{step}}/critical-path"): "read",
    ("GET", f"{_JOB}/collectives"): "read",
    ("GET", f"{_JOB}/stragglers"): "read",
    ("GET", f"{_JOB}/bottlenecks"): "read",
    ("GET", f"{_JOB}/hangs"): "read",
    ("GET", f"{_JOB}/mismatches"): "read",
    ("GET", f"{_JOB}/topology"): "read",
    ("GET", f"{_JOB}/causality"): "read",
    ("GET", f"{_JOB}/causality/cone"): "read",
    ("GET", f"{_JOB}/ranks"): "read",
    ("GET", f"{_JOB}/events"): "read",
    ("GET", f"{_JOB}/traces/{{trace_id}}"): "read",
    ("GET", f"{_JOB}/export"): "read",
    ("POST", f"{_JOB}/derive"): "read",
    ("POST", f"{_JOB}/whatif"): "read",
    ("GET", f"{_JOB}/breakdown"): "read",
    ("GET", f"{_JOB}/compare"): "read",
    ("GET", f"{_JOB}/bandwidth"): "read",
    ("GET", f"{_JOB}/anomalies"): "read",
    ("GET", f"{_JOB}/causes"): "read",
    ("GET", "/v1/scaling"): "read",  # of another job than the caller's it says 404 itself
    ("GET", f"{_JOB}/profile"): "read",
    ("POST", f"{_JOB}/profile"): "admin",  # makes the training pay for it
    ("GET", "/v1/live"): "read",
    ("GET", f"{_JOB}/live"): "read",
    ("GET", f"{_JOB}/quality"): "read",
    ("GET", f"{_JOB}/heatmap"): "read",
    ("GET", f"{_JOB}/figures/{{name}}"): "read",
    ("GET", f"{_JOB}/timeline"): "read",
    ("GET", f"{_JOB}/spans/{{rank}}/{{span_id}}"): "read",
    ("GET", f"{_JOB}/timeline/search"): "read",
    ("GET", "/api/services"): "read",
    ("GET", "/api/services/{service:path}/operations"): "read",
    ("GET", "/api/operations"): "read",
    ("GET", "/api/traces"): "read",
    ("GET", "/api/traces/{trace_id}"): "read",
    ("GET", "/api/dependencies"): "read",
    ("DELETE", _JOB): "admin",
    ("GET", "/metrics"): "read",
    ("GET", "/"): "open",
    ("GET", "/web/palette.json"): "open",
    ("GET", "/web/plotly.min.js"): "open",
    ("GET", "/web/{path:path}"): "open",
    ("GET", "/healthz"): "open",
    ("GET", "/readyz"): "open",
    ("GET", "/openapi.json"): "open",
    ("GET", "/docs"): "open",
    ("GET", "/docs/oauth2-redirect"): "open",
    ("GET", "/redoc"): "open",
}
ALL_JOBS: Final = frozenset({"/metrics"})  # say something about every job: nothing for a token of one job


def route_of(scope: Scope, routes: Sequence[BaseRoute]) -> tuple[str, str | None] | None:
    """The pattern and the job of the route that will answer; None when none will."""
    for route in routes:
        match, child = route.matches(scope)
        if match is Match.FULL:
            job = child["path_params"].get("job")
            return str(getattr(route, "path", "")), None if job is None else job_name(job)
    return None


def keep_slashes(scope: Scope) -> None:
    """Keeps %2F in the name of a job apart from the slashes between the parts of the address."""
    raw: bytes = scope.get("raw_path") or b""
    if raw.startswith(b"/v1/jobs/") and b"%2f" in raw.lower():
        scope["path"] = unquote(re.sub("%2f", f"%{ord(_SLASH):02x}", raw.decode("ascii"), flags=re.IGNORECASE))


def job_name(part: str) -> str:
    """The name of a job as it was sent."""
    return part.replace(_SLASH, "/")


def need_of(method: str, pattern: str) -> Need:
    """The scope that a method of a route needs. HEAD needs what GET does."""
    return NEEDS.get(("GET" if method == "HEAD" else method, pattern), "admin")


def refuse_other_jobs(caller: Caller, pattern: str, job: str | None) -> None:
    """Raises NotFound when the address is another job's than the caller's, Forbidden when it is about all jobs."""
    if caller.job is None:
        return
    if job is not None and job != caller.job:
        raise NotFound(f"there is no job {job!r}", job=job)
    if pattern in ALL_JOBS:
        raise Forbidden(f"this token is for the job {caller.job!r} only; {pattern} is about all of them", job=caller.job)


def refuse_foreign_names(host: str) -> None:
    """Raises Forbidden when the Host header is neither an address nor localhost.

    A web page can make its own name point at this machine and then read what listens here without a password (DNS rebinding);
    the browser still sends the page's name.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if name in ("", "localhost"):
        return
    try:
        ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise Forbidden(
            f"without tokens this service answers to addresses and `localhost` only, not to {name[:100]!r}; "
            "make a token (`crossrank token create`)"
        ) from None
