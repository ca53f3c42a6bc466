"""Each view renders its facts: with a simulated job, whose truth is known, and with one that really ran."""

from __future__ import annotations

import httpx
import pytest

from tests.browser.conftest import SLOW, Jobs
from tests.support.browser import Page

HEATMAP = """
const plot = document.querySelector('[data-test="heatmap"] .js-plotly-plot');
const heat = plot && plot.data && plot.data.find(trace => trace.type === 'heatmap');
if (!heat) return null;
const rows = (heat._inputArray ? heat._inputArray.z : heat.z);
const z = plot._fullData.find(trace => trace.type === 'heatmap').z;
const sums = Array.from(z, row => Array.from(row).reduce((a, b) => a + (Number.isFinite(b) ? b : 0), 0));
return {y: Array.from(heat.y || [], String), sums: sums};
"""


def answer(service, job: str, part: str) -> dict:
    found = httpx.get(f"{service.url}/v1/jobs/{job}/{part}", timeout=60)
    found.raise_for_status()
    return found.json()


def test_jobs_are_listed_with_their_facts(page: Page, jobs: Jobs):
    page.open("/")
    page.wait_text(jobs.sim, jobs.real)
    row = page.one(f'[data-test="job-row"][data-job="{jobs.sim}"]')
    assert str(jobs.simulated.config.world_size) in row.text
    assert f"rank {SLOW.rank}" in row.text.lower(), "the most costly finding is not in the list"
    page.shot("jobs")


def test_overview_tells_who_slowed_the_job_down(page: Page, jobs: Jobs):
    page.open(f"/?job={jobs.sim}")
    first = page.one('[data-test="finding"]')
    assert first.get_attribute("data-rank") == str(SLOW.rank)
    assert "±" in page.one('[data-test="findings"]').text
    for chart in ("steps-chart", "heatmap", "breakdown"):
        page.until(lambda c=chart: page.all(f'[data-test="{c}"] .main-svg'), f"the chart {chart}")
    page.shot("overview")


def test_injected_rank_is_the_hottest_row(page: Page, jobs: Jobs):
    page.open(f"/?job={jobs.sim}")
    heat = page.until(lambda: page.script(HEATMAP), "the heatmap")
    hottest = max(range(len(heat["sums"])), key=lambda row: heat["sums"][row])
    assert str(SLOW.rank) in "".join(c if c.isdigit() else " " for c in heat["y"][hottest]).split()


def test_slow_rank_of_a_real_run_is_found(page: Page, jobs: Jobs, service):
    worst = answer(service, jobs.real, "stragglers")["stragglers"][0]
    page.open(f"/?job={jobs.real}")
    first = page.one('[data-test="finding"]')
    assert first.get_attribute("data-rank") == str(worst["rank"])
    heat = page.until(lambda: page.script(HEATMAP), "the heatmap")
    hottest = max(range(len(heat["sums"])), key=lambda row: heat["sums"][row])
    assert str(worst["rank"]) in "".join(c if c.isdigit() else " " for c in heat["y"][hottest]).split()


@pytest.mark.parametrize("which", ["sim", "real"])
def test_why_tells_the_path_of_a_step(page: Page, jobs: Jobs, service, which: str):
    job = getattr(jobs, which)
    step = answer(service, job, "stragglers")["stragglers"][0]["steps"][0]
    path = answer(service, job, f"steps/{step}/critical-path")
    page.open(f"/?job={job}&view=why&step={step}")
    story = page.one('[data-test="story"]')
    longest = max(path["segments"], key=lambda s: s["on_path_ns"])
    page.until(lambda: f"rank {longest['rank']}" in story.text.lower(), "the rank that is longest on the path")
    assert str(step) in page.one('[data-test="why-title"]').text
    page.one('[data-test="whatif"]')
    page.shot(f"why-{which}")


@pytest.mark.parametrize("which", ["sim", "real"])
def test_clocks_are_listed_with_bounds(page: Page, jobs: Jobs, service, which: str):
    job = getattr(jobs, which)
    page.open(f"/?job={job}&view=clocks")
    domains = answer(service, job, "clocks")["domains"]
    page.until(lambda: len(page.all('[data-test="clock"]')) == len(domains), f"{len(domains)} clocks")
    shown = {row.get_attribute("data-clock") for row in page.all('[data-test="clock"]')}
    assert shown == {d["clock"] for d in domains}
    page.one('[data-test="clock-sentence"]')
    page.shot(f"clocks-{which}")


@pytest.mark.parametrize("which", ["sim", "real"])
def test_jobs_that_ended_do_not_hang(page: Page, jobs: Jobs, which: str):
    page.open(f"/?job={getattr(jobs, which)}&view=hang")
    page.wait_text("does not hang")
    assert page.all('[data-test="hang"]')
    assert page.all('[data-test="mismatches"]')


def test_compare_shows_what_a_slow_range_costs(page: Page, jobs: Jobs):
    first, last = SLOW.steps
    page.open(f"/?job={jobs.sim}&view=compare&from={first}&to={last}&base_from={last + 1}&base_to={last + 4}")
    page.until(lambda: page.all('[data-test="compare-sentence"]'), "the sentence of the comparison")
    assert "instead of" in page.one('[data-test="compare-sentence"]').text
    page.until(lambda: "forward" in page.one('[data-test="compare"]').text, "the phase that moved")


@pytest.mark.parametrize("which", ["sim", "real"])
def test_quality_tells_what_was_taken(page: Page, jobs: Jobs, which: str):
    page.open(f"/?job={getattr(jobs, which)}&view=quality")
    page.until(lambda: len(page.one('[data-test="quality"]').text) > 20, "what was taken")


def test_every_view_reads_in_the_dark(page: Page, jobs: Jobs):
    def light_on_dark() -> list[str]:
        return page.script(
            "const lum = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return (r * 3 + g * 6 + b) / 10; };"
            "const body = getComputedStyle(document.body); return [lum(body.backgroundColor) < 80, lum(body.color) > 150]"
        )

    for view in ("overview", "timeline", "why", "clocks", "hang", "compare", "quality"):
        page.theme("dark")
        page.open(f"/?job={jobs.sim}&view={view}")
        page.until(lambda v=view: page.all(f'[data-view="{v}"] > *'), view)
        assert light_on_dark() == [True, True], view
        page.until(lambda: not page.all("[aria-busy], .loading"), f"{view} has loaded")
        page.shot(f"{view}-dark")
        page.theme("light")
        page.until(lambda: light_on_dark() == [False, False], f"{view} in the light")


@pytest.mark.parametrize("view", ["overview", "timeline", "why", "clocks", "hang", "compare", "quality"])
def test_pages_fit_1280_pixels(page: Page, jobs: Jobs, view: str):
    page.open(f"/?job={jobs.sim}&view={view}")
    page.until(lambda: page.all(f'[data-view="{view}"] > *'), view)
    page.until(lambda: not page.all("[aria-busy]"), f"{view} has loaded")
    assert page.script("return document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"


def test_unknown_job_is_said_in_words(page: Page):
    page.expected = ("404",)
    page.open("/?job=no-such-job&view=overview")
    page.wait_text("no-such-job", "Try again")
