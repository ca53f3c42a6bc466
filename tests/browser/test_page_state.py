"""The address is the whole state: what it restores is what its sender saw."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.action_chains import ActionChains

from tests.browser.conftest import SLOW, Jobs
from tests.browser.test_page_findings import address
from tests.browser.test_page_timeline import SEEN, keys, settled
from tests.browser.test_page_views import answer
from tests.support.browser import Page

FIRST, LAST = SLOW.steps


def loaded(page: Page, view: str) -> None:
    page.until(lambda: page.all(f'[data-view="{view}"] > *'), view)
    page.until(lambda: not page.all("[aria-busy], .loading"), f"{view} has loaded")


@pytest.mark.parametrize(
    ("view", "more"),
    [
        ("overview", {}),
        ("timeline", {"t0": "900000000", "t1": "1300000000", "r0": "2", "r1": "0-9", "aligned": "fit", "q": "forward"}),
        ("why", {"edit": '[{"rank":5,"kind":"compute","as":"median"}]'}),
        ("clocks", {}),
        ("hang", {}),
        ("compare", {"base": Jobs.sim, "base_from": str(LAST + 1), "base_to": str(LAST + 4)}),
        ("quality", {}),
    ],
)
def test_address_with_every_parameter_stays_and_restores(page: Page, jobs: Jobs, service, view: str, more: dict[str, str]):
    events = answer(service, jobs.sim, f"events?rank={SLOW.rank}&step={FIRST}&kind=compute&limit=1")["events"]
    given = {
        "job": jobs.sim, "view": view, "attempt": "0", "from": str(FIRST), "to": str(LAST), "step": str(FIRST), "rank": str(SLOW.rank),
        "span": f"{SLOW.rank}:{events[0]['span_id']}", **more,
    }  # fmt: skip
    query = page.script("return new URLSearchParams(arguments[0]).toString()", given)
    page.open(f"/?{query}")
    loaded(page, view)
    kept = {key: value for key, value in address(page).items() if key in given}
    assert kept == given
    text = page.text()
    page.open(page.script("return location.pathname + location.search"))
    loaded(page, view)
    page.until(lambda: page.text() == text, "the same words as before")


def test_what_a_user_did_on_the_timeline_is_restored(page: Page, jobs: Jobs):
    page.open(f"/?job={jobs.sim}&view=timeline&step={FIRST}&rank={SLOW.rank}")
    page.one('.timeline[data-ready="1"]')
    settled(page)
    page.one('[data-aligned="fit"]').click()
    settled(page)
    keys(page, "w", "w", "d", ".")
    before = page.until(lambda: (seen := settled(page))["chosen"] and seen, "a chosen span")
    page.until(lambda: address(page).get("span") == before["chosen"], "the span in the address")
    page.until(lambda: address(page).get("t0") == str(round(settled(page)["t0"])), "the place in the address")
    before = settled(page)
    page.open(page.script("return location.pathname + location.search"))
    page.one('.timeline[data-ready="1"]')
    page.until(lambda: page.script(SEEN)["chosen"] == before["chosen"], "the same span")
    page.until(lambda: page.one('[data-test="span-details"] [data-test="before"]'), "its details")
    after = settled(page)
    assert abs(after["t0"] - before["t0"]) <= 1
    assert abs(after["t1"] - before["t1"]) <= 1
    assert (after["mode"], after["rows"], after["chosen"]) == (before["mode"], before["rows"], before["chosen"])
    page.one('[data-aligned="fit"][aria-checked="true"]')


def test_back_and_forward_move_through_views(page: Page, jobs: Jobs):
    page.open(f"/?job={jobs.sim}")
    page.one('[data-test="tab-clocks"]').click()
    page.one('[data-test="clocks"]')
    page.driver.back()
    page.one('[data-test="findings"]')
    assert address(page).get("view", "overview") == "overview"
    page.driver.forward()
    page.one('[data-test="clocks"]')


def test_brushed_range_goes_for_everything(page: Page, jobs: Jobs, service):
    page.open(f"/?job={jobs.sim}&from={FIRST}&to={LAST}")
    steps = answer(service, jobs.sim, f"steps?from={FIRST}&to={LAST}")["steps"]
    page.until(lambda: str(len(steps)) in page.one('[data-test="facts"]').text, "only the steps of the range")
    page.one('[data-test="range-clear"]').click()
    page.until(lambda: "from" not in address(page), "the whole job again")


DRAWN = """
return arguments[0].map(name => {
  const plot = document.querySelector(`[data-test="${name}"] .js-plotly-plot`);
  return plot && plot._fullLayout ? plot._fullLayout.xaxis.range.map(Number) : null;
});
"""


def test_steps_brushed_by_hand_are_looked_at_everywhere(page: Page, jobs: Jobs, service):
    page.open(f"/?job={jobs.sim}")
    page.until(lambda: not page.all("[aria-busy], .loading"), "the overview has loaded")
    area = page.one('[data-test="steps-chart"] .nsewdrag')
    wide = area.size["width"]
    hand = ActionChains(page.driver).move_to_element_with_offset(area, round(-0.3 * wide), 0).click_and_hold()
    hand.move_by_offset(round(0.2 * wide), 0).move_by_offset(round(0.2 * wide), 0).release().perform()
    page.until(lambda: "from" in address(page), "the brushed steps in the address")
    first, last = int(address(page)["from"]), int(address(page)["to"])
    assert 0 < first < last < jobs.simulated.config.steps - 1
    steps = answer(service, jobs.sim, f"steps?from={first}&to={last}")["steps"]
    page.until(lambda: f"Complete steps\n{len(steps)}" in page.one('[data-test="facts"]').text, "only the steps of the range")
    page.until(
        lambda: page.script(DRAWN, ["steps-chart", "heatmap"]) == [[first - 0.5, last + 0.5]] * 2, "both charts on the same steps"
    )
    page.one('[data-test="tab-timeline"]').click()
    page.until(lambda: page.one('[data-test="timeline-range"]').text == f"Steps {first}–{last}", "the timeline of these steps")
