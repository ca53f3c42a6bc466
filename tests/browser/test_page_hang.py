"""A job that hangs: who holds it up and the proof; the page keeps time without taking away what the reader has opened."""

from __future__ import annotations

import json
import time
from urllib.parse import quote

import httpx
import pytest

from tests.support.browser import Page
from tests.support.server import derived

JOB, CULPRIT, RANKS = "team/hangs <b>", 3, 4


@pytest.fixture(scope="module")
def hung(service) -> str:
    """Four ranks; one does not come to the last all-reduce."""
    begin = time.time_ns() - 60_000_000_000
    rows = []
    for step in range(6):
        for rank in range(RANKS if step < 5 else RANKS - 1):
            at = begin + step * 100_000_000
            rows.append(
                {
                    "job": JOB, "rank": rank, "host": "h0", "name": "all_reduce", "kind": "collective", "op": "all_reduce",
                    "group": "world", "group_ranks": list(range(RANKS)), "seq": step, "step": step, "span_id": f"{rank:04x}{step + 1:012x}",
                    "start_ns": at + rank * 1_000_000, "end_ns": at + 50_000_000 if step < 5 else None,
                }
            )  # fmt: skip
    body = "\n".join(map(json.dumps, rows)).encode()
    httpx.post(f"{service.url}/v1/events", content=body, headers={"content-type": "application/x-ndjson"}).raise_for_status()
    with service.client() as client:
        derived(client, quote(JOB, safe=""))
    return JOB


def test_the_culprit_is_named_with_proof_and_what_was_opened_stays_open(page: Page, hung: str):
    page.open(f"/?{httpx.QueryParams({'job': hung, 'view': 'hang'})}")
    culprit = page.one('[data-test="culprit"]')
    assert culprit.get_attribute("data-rank") == str(CULPRIT)
    assert f"rank {CULPRIT} has not entered" in culprit.text
    assert page.all('[data-test="wait-graph"]')
    page.one('[data-test="hang"] summary').click()
    heading = page.one('[data-test="hang"] h1').text
    assert heading.startswith("It has been hanging for")
    page.until(lambda: page.one('[data-test="hang"] h1').text != heading, "the time goes on")
    assert page.script("return document.querySelector('[data-test=\"hang\"] details').open"), (
        "the table was closed under the reader"
    )
    assert culprit.is_displayed()
    page.shot("hang")
