"""Names that come with events are hostile: on every view they are text, and nothing of them runs."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from tests.support.browser import Page
from tests.support.server import derived

SCRIPT = "<script>window.__pwned=1</script>"
IMAGE = "<img src=x onerror=alert(1)>"
JOB = f"{SCRIPT}{IMAGE}"
HOST, LANE, GROUP = f"host{IMAGE}", f"lane{SCRIPT}", f"group{IMAGE}"
SLOW_NAME = f"slow{IMAGE}{SCRIPT}"
KEY, VALUE = f"key{IMAGE}", f"value{SCRIPT}"
STEP_NS = 100_000_000


def lines(start_ns: int) -> bytes:
    """Four ranks, eight steps; rank 2 computes slowly from step 4 on; at the end only rank 2 does not enter the last operation."""
    found = []
    for step in range(9):
        base = start_ns + step * STEP_NS
        for rank in range(4):
            slow = 40_000_000 if rank == 2 and step >= 4 else 0
            common = {"job": JOB, "rank": rank, "host": f"{HOST}{rank // 2}", "lane": LANE, "step": step}
            number = step * 100 + rank
            work = base + 20_000_000 + slow + rank * 50_000
            if step < 8:
                found.append({**common, "name": SLOW_NAME, "kind": "compute", "start_ns": base, "end_ns": work,
                              "span_id": f"{number * 2 + 1:016x}", "attrs": {KEY: VALUE}})  # fmt: skip
            if step == 8 and rank == 2:
                continue
            end = None if step == 8 else base + 62_000_000 + slow // 4
            found.append({**common, "name": f"reduce{IMAGE}", "kind": "collective", "op": "all_reduce", "group": GROUP, "seq": step, "group_ranks": [0, 1, 2, 3],
                          "start_ns": work, "end_ns": end, "span_id": f"{number * 2 + 2:016x}", "attrs": {KEY: VALUE}})  # fmt: skip
    found.append(
        {"job": JOB, "rank": 1, "name": SLOW_NAME, "kind": f"kind{IMAGE}", "start_ns": 5, "end_ns": 1, "span_id": "ff", KEY: VALUE}
    )
    return b"\n".join(json.dumps(line).encode() for line in found)


@pytest.fixture(scope="module")
def hostile(service) -> str:
    with service.client() as client:
        body = lines(time.time_ns() - 60_000_000_000)
        client.post("/v1/events", content=body, headers={"content-type": "application/x-ndjson"}).raise_for_status()
        derived(client, httpx.URL(path=JOB).raw_path.decode().lstrip("/"))
    return JOB


def nothing_ran(page: Page) -> None:
    assert page.script("return window.__pwned === undefined")
    assert page.script("return document.querySelectorAll('[onerror], [src=x], main script, main iframe').length") == 0
    assert page.script("return [...document.scripts].every(s => s.src.startsWith(location.origin) && s.textContent === '')")
    assert page.faults() == []


def visit(page: Page, job: str, view: str, more: str = "") -> str:
    query = page.script("return new URLSearchParams({job: arguments[0], view: arguments[1]}).toString()", job, view)
    page.open(f"/?{query}{more}")
    page.until(lambda: page.all(f'[data-view="{view}"] > *'), view)
    page.until(lambda: not page.all("[aria-busy], .loading"), f"{view} has loaded")
    return page.text()


def test_list_of_jobs(page: Page, hostile: str):
    page.open("/")
    assert hostile in page.wait_text("onerror")
    nothing_ran(page)


@pytest.mark.parametrize(
    ("view", "shown"),
    [("overview", "rank 2"), ("why", SLOW_NAME), ("clocks", HOST), ("hang", GROUP), ("compare", JOB), ("quality", JOB)],
)
def test_view(page: Page, hostile: str, view: str, shown: str):
    more = "&from=4&to=7&base_from=0&base_to=3" if view == "compare" else "&step=5" if view == "why" else ""
    visit(page, hostile, view, more)
    page.until(lambda: shown in page.text(), f"{shown} as text")
    assert JOB in page.text()
    for chart in page.all(".js-plotly-plot"):
        page.script(
            "const e = arguments[0].querySelector('.nsewdrag'); e && e.dispatchEvent(new MouseEvent('mousemove', {bubbles: true, clientX: 400, clientY: 400}))",
            chart,
        )
    nothing_ran(page)


def test_charts_draw_names_as_text(page: Page, hostile: str):
    visit(page, hostile, "clocks")
    page.until(lambda: page.all(".js-plotly-plot .main-svg"), "the chart of the clocks")
    nothing_ran(page)


def test_timeline_and_span_details(page: Page, hostile: str):
    visit(page, hostile, "timeline", f"&step=5&rank=2&span=2:{(5 * 100 + 2) * 2 + 1:016x}")
    page.one('.timeline[data-ready="1"]')
    panel = page.one('[data-test="span-details"]')
    page.until(lambda: KEY in panel.text, "the key of an attribute as text")
    assert VALUE in panel.text
    assert SLOW_NAME in panel.text
    assert HOST in panel.text
    assert LANE in panel.text
    page.one('[data-test="timeline-search"]').send_keys(IMAGE)
    page.until(lambda: "hit" in page.one('[data-test="timeline-said"]').text, "an answer to the search")
    nothing_ran(page)


def test_error_text(page: Page, hostile: str):
    page.expected = ("404",)
    page.open(
        "/?" + page.script("return new URLSearchParams({job: arguments[0], view: 'overview'}).toString()", f"none{IMAGE}{SCRIPT}")
    )
    page.until(lambda: page.all('[data-test="failure"]'), "the failure in words")
    assert IMAGE in page.text()
    nothing_ran(page)
