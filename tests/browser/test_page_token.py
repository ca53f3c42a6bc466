"""A service with tokens: the page opens without one, asks for it, says when it is wrong, and works with it."""

from __future__ import annotations

import pytest

from crossrank.auth.tokens import create_token
from tests.support.browser import Page, require_chromium
from tests.support.server import Service

LINE = b'{"job":"page-secret","rank":0,"name":"a","kind":"compute","start_ns":1780000000000000000,"end_ns":1780000000001000000,"span_id":"01"}'


@pytest.fixture
def guarded(tmp_path):
    require_chromium()
    folder = tmp_path / "data"
    folder.mkdir()
    tokens = {scope: create_token(folder, scope, None, 0)[1] for scope in ("read", "ingest")}
    with Service(folder) as running:
        with running.client() as client:
            headers = {"Authorization": f"Bearer {tokens['ingest']}", "content-type": "application/x-ndjson"}
            client.post("/v1/events", content=LINE, headers=headers).raise_for_status()
        yield running, tokens


def test_page_asks_for_a_token_and_then_works(driver, guarded):
    service, tokens = guarded
    page = Page(driver, service.url)
    page.expected = ("401",)
    page.open("/")
    assert page.one('[data-test="token-dialog"]').is_displayed()
    assert "page-secret" not in page.text()
    page.one("#token").send_keys(tokens["read"][:-2] + "xx")
    page.one('[data-test="token-submit"]').click()
    page.wait_text("did not accept")
    page.one("#token").send_keys(tokens["read"])
    page.one('[data-test="token-submit"]').click()
    page.one('[data-test="job-row"][data-job="page-secret"] a').click()
    page.wait_text("page-secret")
    page.one('[data-test="tab-timeline"]').click()
    page.one('.timeline[data-ready="1"]')
    assert tokens["read"] not in page.driver.current_url
    assert page.script("return document.cookie + JSON.stringify(localStorage)").find(tokens["read"]) < 0
    assert page.faults() == []
    page.driver.get("about:blank")  # leaves before the service ends
    page.faults()
