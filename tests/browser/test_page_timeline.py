"""The timeline: it draws what the service says, moves by hand and keys, and tells everything about a span."""

from __future__ import annotations

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import SLOW, Jobs
from tests.browser.test_page_findings import address
from tests.browser.test_page_views import answer
from tests.support.browser import Page

SEEN = """
const {view, tile, chosen} = document.querySelector('.timeline').timelineView;
return {t0: view.t0, t1: view.t1, top: view.top, rows: view.rowCount, count: tile.count, chosen: chosen && chosen.ref,
  mode: tile.need.mode, ranks: tile.rows.map(row => row.rank)};
"""
PLACE = """
const {view, tile} = document.querySelector('.timeline').timelineView;
const box = document.querySelector('[data-test="timeline-canvas"]').getBoundingClientRect();
const local = tile.rows.findIndex(row => row.rank === arguments[0]);
const middle = (arguments[1] + arguments[2]) / 2;
const levels = Math.max(1, tile.rows[local].depth), depth = arguments[3];
return [view.x(middle) - box.width / 2, view.y(tile.rowFrom + local) + 1 + (depth + 0.5) * (view.rowPx - 3) / levels - box.height / 2];
"""


def opened(page: Page, query: str) -> dict:
    page.open(f"/?{query}&view=timeline")
    page.one('.timeline[data-ready="1"]')
    return settled(page)


def settled(page: Page) -> dict:
    """What is seen once the answer for it is here."""
    page.until(
        lambda: page.script(
            "const {tiles, tile} = document.querySelector('.timeline').timelineView;"
            "return tiles.flight === null && tiles.wanted !== null && tiles.lookUp(tiles.wanted) === tile && tile !== null"
        ),
        "the answer for what is seen",
    )
    return page.script(SEEN)


def keys(page: Page, *pressed: str) -> None:
    page.one('[data-test="timeline-canvas"]').send_keys(*pressed)


def test_whole_job_is_drawn_and_told(page: Page, jobs: Jobs):
    seen = opened(page, f"job={jobs.sim}")
    assert seen["rows"] >= jobs.simulated.config.world_size
    summary = page.script("return document.querySelector('[data-test=\"timeline-summary\"]').textContent")
    assert "ranks 0 to" in summary
    assert "critical path" in summary
    colours = page.script(
        "const c = document.querySelector('[data-test=\"timeline-canvas\"]'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const seen = new Set(); for (let i = 0; i < d.length; i += 4 * 97) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size"
    )
    assert colours > 5, "the canvas is as good as empty"
    page.shot("timeline")


def test_real_job_is_drawn(page: Page, jobs: Jobs, service):
    seen = opened(page, f"job={jobs.real}")
    ranks = answer(service, jobs.real, "ranks")["ranks"]
    assert {r["rank"] for r in ranks} == set(seen["ranks"])
    assert seen["count"] > 100
    page.shot("timeline-real")


def test_hand_and_keys_move_what_is_seen(page: Page, jobs: Jobs):
    start = opened(page, f"job={jobs.sim}&step={SLOW.steps[0]}")
    width = start["t1"] - start["t0"]
    keys(page, "w")
    zoomed = settled(page)
    assert zoomed["t1"] - zoomed["t0"] < width
    keys(page, "d")
    moved = settled(page)
    assert moved["t0"] > zoomed["t0"]
    keys(page, Keys.ARROW_LEFT)
    back = settled(page)
    assert abs(back["t0"] - zoomed["t0"]) < 1e-6 * width
    canvas = page.one('[data-test="timeline-canvas"]')
    ActionChains(page.driver).move_to_element(canvas).click_and_hold().move_by_offset(-100, 0).release().perform()
    assert settled(page)["t0"] > back["t0"]
    before = settled(page)
    page.script(
        "const c = arguments[0], b = c.getBoundingClientRect(); c.dispatchEvent(new WheelEvent('wheel',"
        "{deltaY: -240, clientX: b.left + b.width / 2, clientY: b.top + b.height / 2, bubbles: true, cancelable: true}))",
        canvas,
    )
    after = settled(page)
    assert after["t1"] - after["t0"] < before["t1"] - before["t0"]
    keys(page, "0")
    whole = settled(page)
    assert whole["t1"] - whole["t0"] > 10 * width
    page.until(lambda: address(page).get("t0") == str(round(whole["t0"])), "the place in the address")


def test_click_shows_a_span_with_what_led_to_it(page: Page, jobs: Jobs, service):
    step = SLOW.steps[0]
    events = answer(service, jobs.sim, f"events?rank={SLOW.rank}&step={step}&kind=compute&limit=50")["events"]
    slow = max((e for e in events if e["name"] == SLOW.phase), key=lambda e: e["end_ns"] - e["start_ns"])
    opened(page, f"job={jobs.sim}&step={step}&rank={SLOW.rank}")
    span = answer(service, jobs.sim, f"spans/{SLOW.rank}/{slow['span_id']}")["span"]
    depth = page.script(
        "const {tile} = document.querySelector('.timeline').timelineView; return tile.depth[tile.id.indexOf(arguments[0])]",
        slow["span_id"],
    )
    x, y = page.script(PLACE, SLOW.rank, span["start"], span["end"], depth)
    canvas = page.one('[data-test="timeline-canvas"]')
    ActionChains(page.driver).move_to_element_with_offset(canvas, round(x), round(y)).click().perform()
    panel = page.one('[data-test="span-details"]')
    page.until(lambda: panel.get_attribute("data-span") == f"{SLOW.rank}:{slow['span_id']}", "the span that was clicked")
    page.until(lambda: str(slow["start_ns"]) in panel.text, "its raw stamps")
    assert str(slow["aligned_start_ns"]) in panel.text
    assert "right within" in panel.text or "reference" in panel.text
    assert address(page)["span"] == f"{SLOW.rank}:{slow['span_id']}"
    link = page.one('[data-test="before"] button')
    other = link.get_attribute("data-span")
    link.click()
    page.until(lambda: panel.get_attribute("data-span") == other, "the span that had to come first")
    page.driver.back()
    page.until(lambda: panel.get_attribute("data-span") == f"{SLOW.rank}:{slow['span_id']}", "back to the first span")


def test_last_arriver_shows_who_waited_for_it(page: Page, jobs: Jobs, service):
    found = answer(service, jobs.sim, f"collectives?step={SLOW.steps[0]}&min_wait_ns=5000000")["collectives"]
    late = next(c for c in found if c["last_arriver"] == SLOW.rank)
    timeline = answer(
        service, jobs.sim, f"events?rank={SLOW.rank}&step={SLOW.steps[0]}&kind=collective&group={late['group']}&limit=200"
    )
    span = next(e for e in timeline["events"] if e["seq"] == late["seq"])
    opened(page, f"job={jobs.sim}&step={SLOW.steps[0]}&rank={SLOW.rank}&span={SLOW.rank}:{span['span_id']}")
    waited = page.one('[data-test="waited"]')
    assert "waited" in waited.text
    assert page.all('[data-test="waited"] button')
    page.shot("timeline-span")


def test_raw_times_show_what_the_correction_did(page: Page, jobs: Jobs):
    def start_of(rank: int) -> float:
        return page.script(
            "const {tile} = document.querySelector('.timeline').timelineView; const local = tile.rows.findIndex(r => r.rank === arguments[0]);"
            "return tile.start[tile.ptr[local]]",
            rank,
        )

    opened(page, f"job={jobs.sim}")
    last = jobs.simulated.config.world_size - 1
    page.one('[data-aligned="repaired"][aria-checked="true"]')
    repaired = start_of(last)
    page.one('[data-aligned="raw"]').click()
    page.until(lambda: '"raw"' in settled(page)["mode"], "raw times")
    assert address(page)["aligned"] == "raw"
    raw = start_of(last)
    assert abs(raw - repaired) > 1_000_000, "the clocks of the last host were off by milliseconds"
    page.shot("timeline-raw")
    page.one('[data-aligned="fit"]').click()
    page.until(lambda: '"fit"' in settled(page)["mode"], "fitted times")
    assert abs(start_of(last) - repaired) < abs(raw - repaired) / 10


def test_search_marks_hits_and_walks_through_them(page: Page, jobs: Jobs, service):
    opened(page, f"job={jobs.sim}&step={SLOW.steps[0]}")
    box = page.one('[data-test="timeline-search"]')
    box.send_keys("optimizer")
    total = answer(service, jobs.sim, "timeline/search?q=optimizer&limit=1")["total"]
    page.until(lambda: f"{total:,}" in page.one('[data-test="timeline-said"]').text, "how many hits there are")
    page.until(lambda: '"optimizer"' in settled(page)["mode"], "the marked picture")
    hits = page.script(
        "const {tile} = document.querySelector('.timeline').timelineView; return tile.hit.reduce((a, b) => a + b, 0)"
    )
    assert hits > 0
    box.send_keys(Keys.ENTER)
    first = page.until(lambda: settled(page)["chosen"], "the next hit")
    page.until(lambda: "optimizer" in page.one('[data-test="span-details"]').text, "its details")
    box.send_keys(Keys.ENTER)
    page.until(lambda: settled(page)["chosen"] not in (None, first), "the hit after it")


def test_rank_filter_and_keys_for_spans(page: Page, jobs: Jobs):
    opened(page, f"job={jobs.sim}&step={SLOW.steps[0]}")
    box = page.one('[data-test="timeline-ranks"]')
    box.send_keys("2-3,5", Keys.ENTER)
    page.until(lambda: set(settled(page)["ranks"]) == {2, 3, 5}, "three ranks")
    assert address(page)["r1"] == "2-3,5"
    keys(page, ".")
    first = page.until(lambda: page.script(SEEN)["chosen"], "a span chosen by key")
    keys(page, ".")
    second = page.until(lambda: (c := page.script(SEEN)["chosen"]) != first and c, "the next one")
    keys(page, "j")
    page.until(
        lambda: (c := page.script(SEEN)["chosen"]) != second and c.split(":")[0] != second.split(":")[0], "one of the next rank"
    )
    keys(page, Keys.ENTER)
    page.until(
        lambda: page.driver.switch_to.active_element.get_attribute("data-test") == "span-details", "the focus in the details"
    )
    page.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: page.script(SEEN)["chosen"] is None, "nothing chosen")
