"""A job that runs while somebody looks: its news appear by themselves, without taking the reader's place away."""

from __future__ import annotations

import time

import httpx

from crossrank.commands.client import HttpAnswers, connect
from crossrank.commands.live import Pace, post_batches, post_topology
from crossrank.commands.poster import Poster
from crossrank.simulate.config import JobConfig
from crossrank.simulate.deliver import Delivery, deliver
from crossrank.simulate.job import simulate
from tests.browser.test_page_findings import address
from tests.support.browser import Page
from tests.support.server import derived

JOB = "page-live"
SEED = 3
DEMAND_S = 3


def test_news_of_a_running_job_appear_by_themselves(page: Page, service):
    print(f"simulator seed {SEED}")
    simulated = simulate(JobConfig(job=JOB, dp=4, tp=2, pp=1, steps=12), (), seed=SEED)
    batches = deliver(simulated, Delivery(every_ns=200_000_000))
    half = len(batches) // 2
    with connect(service.url, 4) as client:
        answers = HttpAnswers(service.url, client)
        post_topology(answers, JOB, simulated.topology)
        poster = Poster(client, service.url, JOB, 60)
        post_batches(poster, batches[:half], Pace(), lambda _: None)
        with service.client() as asking:
            derived(asking, JOB)
        page.open(f"/?job={JOB}&from=1&to=40")
        before = shown_steps(page)
        page.one('[data-test="live-state"].live')
        page.script("window.scrollTo(0, 300); window.__same_page = true")
        scrolled = page.script("return scrollY")
        post_batches(poster, batches[half:], Pace(), lambda _: None)
        acknowledged = time.monotonic()
        page.until(lambda: shown_steps(page) > before, "more steps than before")
    took_s = time.monotonic() - acknowledged
    print(f"news appeared {took_s:.2f} s after their events were acknowledged (demand: {DEMAND_S} s)")
    assert page.script("return window.__same_page"), "the page was loaded again"
    assert page.script("return scrollY") == scrolled
    assert (address(page)["from"], address(page)["to"]) == ("1", "40")


def shown_steps(page: Page) -> int:
    """The number of steps that the bar of the page names."""

    def named() -> int | None:
        text = next((e.text for e in page.all('[data-test="completeness"]')), "")
        numbers = [part.split()[0] for part in text.split("·") if "step" in part]
        return int(numbers[0].replace(",", "")) if numbers else None

    return page.until(named, "how many steps there are")


def test_new_job_appears_in_the_list(page: Page, service):
    page.open("/")
    page.one('[data-test="live-state"].live')
    line = b'{"job":"page-newcomer","rank":0,"name":"a","kind":"compute","start_ns":1780000000000000000,"end_ns":1780000000001000000,"span_id":"01"}'
    httpx.post(f"{service.url}/v1/events", content=line, headers={"content-type": "application/x-ndjson"}).raise_for_status()
    acknowledged = time.monotonic()
    page.until(lambda: page.all('[data-job="page-newcomer"]'), "the new job")
    print(f"a new job appeared {time.monotonic() - acknowledged:.2f} s after its first event (demand: {DEMAND_S} s)")
