"""The page's own addresses: what is served, as what, under which policy, and that nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crossrank.auth.tokens import create_token
from crossrank.web.static_files import STATIC, TYPES, plotly_version
from tests.support.inprocess import InProcess

FILES = sorted(p.relative_to(STATIC).as_posix() for p in STATIC.rglob("*") if p.is_file())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    folder: Path = tmp_path_factory.mktemp("page")
    create_token(folder, "read", None, 0)  # the page itself is open where tokens are used
    with InProcess(folder) as running:
        yield running


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_as_what_it_is(service, name):
    answer = service.request("GET", f"/web/{name}")
    assert answer.status_code == 200
    assert answer.content == (STATIC / name).read_bytes()
    assert answer.headers["content-type"] == TYPES[Path(name).suffix]
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = service.request("GET", f"/web/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_has_a_policy_without_inline_scripts_or_strangers(service):
    answer = service.request("GET", "/")
    assert answer.content == (STATIC / "index.html").read_bytes()
    (policy,) = answer.headers.get_list("content-security-policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    "path",
    ["../routes.py", "%2e%2e/routes.py", "..%2froutes.py", "/etc/passwd", "core/../../routes.py", "core", "", "core//dom.js",
     "index.html%00.js", "INDEX.HTML", "~", "\\..\\routes.py"],
)  # fmt: skip
def test_nothing_outside_is_served(service, path):
    answer = service.request("GET", f"/web/{path}")
    assert answer.status_code == 404
    assert b"import" not in answer.content


def test_plotly_comes_from_the_package_compressed_and_kept_by_version(service):
    answer = service.request("GET", f"/web/plotly.min.js?v={plotly_version()}", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert int(answer.headers["content-length"]) < 2_000_000 < len(answer.content)
    assert b"plotly.js v" in answer.content[:300]
    plain = service.request("GET", "/web/plotly.min.js", headers={"Accept-Encoding": "identity"})
    assert plain.headers["cache-control"] == "no-cache"
    assert plain.content == answer.content


def test_colours_are_open_and_data_is_not(service):
    assert {"kinds", "light", "dark", "plotly_version"} <= service.get("/web/palette.json").keys()
    assert service.request("GET", "/v1/jobs").status_code == 401
