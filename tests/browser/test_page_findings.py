"""From the list of jobs to the span that is to blame: a click on a finding lands on its rank, step and span."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from tests.browser.conftest import SLOW, Jobs
from tests.browser.test_page_views import answer
from tests.support.browser import Page


def address(page: Page) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(page.driver.current_url).query).items()}


def test_click_on_a_finding_lands_on_its_step_and_span(page: Page, jobs: Jobs, service):
    page.open(f"/?job={jobs.sim}")
    page.one('[data-test="finding"]').click()
    page.until(lambda: "span" in address(page), "the span of the finding in the address")
    now = address(page)
    assert (now["view"], now["rank"]) == ("timeline", str(SLOW.rank))
    assert SLOW.steps[0] <= int(now["step"]) <= SLOW.steps[1]
    rank, span_id = now["span"].split(":")
    assert rank == str(SLOW.rank)
    span = answer(service, jobs.sim, f"spans/{rank}/{span_id}")["span"]
    assert (span["name"], span["step"]) == (SLOW.phase, int(now["step"]))
    panel = page.one('[data-test="span-details"]')
    page.until(lambda: SLOW.phase in panel.text, "the details of the span")
    assert f"rank {SLOW.rank}" in panel.text
    page.until(lambda: sees(page, span["start"], span["end"], SLOW.rank), "the span within what is seen")


def sees(page: Page, start: int, end: int, rank: int) -> bool:
    return page.script(
        "const {view, tile} = document.querySelector('.timeline').timelineView; if (!tile) return false;"
        "const rows = view.rows(); const ranks = tile.rows.slice(rows.first - tile.rowFrom, rows.end - tile.rowFrom).map(r => r.rank);"
        "return view.t0 <= arguments[0] && arguments[1] <= view.t1 && ranks.includes(arguments[2])",
        start, end, rank,
    )  # fmt: skip


def test_three_clicks_from_the_start_to_which_rank_and_why(page: Page, jobs: Jobs):
    page.open("/")
    clicks = 0
    page.one(f'[data-test="job-row"][data-job="{jobs.sim}"] a').click()
    clicks += 1
    text = page.one('[data-test="finding"]').text.lower()
    assert re.search(rf"\brank {SLOW.rank}\b", text), "which rank"
    page.one('[data-test="finding-why"]').click()
    clicks += 1
    page.until(lambda: SLOW.phase in page.one('[data-test="story"]').text, "why: the phase on the path")
    assert f"rank {SLOW.rank}" in page.one('[data-test="story"]').text.lower()
    assert clicks <= 3
    print(f"which rank and why after {clicks} clicks")


def test_a_step_of_the_real_run_is_explained_from_its_finding(page: Page, jobs: Jobs, service):
    worst = answer(service, jobs.real, "stragglers")["stragglers"][0]
    page.open(f"/?job={jobs.real}")
    page.one('[data-test="finding"]').click()
    page.until(lambda: address(page).get("span", "").startswith(f"{worst['rank']}:"), "the span of the finding")
    panel = page.one('[data-test="span-details"]')
    page.until(lambda: worst["cause"]["name"] in panel.text, "the cause in the details")
    assert int(address(page)["step"]) in worst["steps"]
