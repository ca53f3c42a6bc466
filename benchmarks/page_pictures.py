"""Draws the pictures of README and docs/page.md: the job of `crossrank demo` on the page of a real service, in headless Chromium.

python benchmarks/page_pictures.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx

from crossrank.commands.demo import JOB, LOADER, SEED, SLOW, STEPS
from crossrank.commands.simulate import post
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.support.browser import Page, start_driver
from tests.support.server import Service, derived

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"
WIDTH, LEAST, MOST = 1280, 640, 1800


def finding_span(page: Page) -> str:
    """The address of the span of the first finding, as a click on its sentence shows it."""
    page.open(f"/?job={JOB}")
    page.one('[data-test="finding"]').click()
    page.until(lambda: "span=" in page.script("return location.search"), "the span of the finding")
    return str(page.script("return location.pathname + location.search"))


def draw(page: Page, driver: Any, name: str, address: str, theme: str) -> None:
    """One picture, as high as the view."""
    page.theme(theme)
    driver.set_window_size(WIDTH, 900)
    page.open(address)
    page.until(lambda: page.all("[data-view] > *") and not page.all("[aria-busy], .loading"), f"{name} has loaded")
    if "view=timeline" in address:
        page.until(lambda: page.all('.timeline[data-ready="1"] [data-test="before"]'), "the details of the span")
    else:
        page.until(lambda: len(page.all(".plot")) == len(page.all(".plot .main-svg:first-child")), "all charts")
        height = page.script("const chrome = outerHeight - innerHeight; return document.documentElement.scrollHeight + chrome")
        driver.set_window_size(WIDTH, min(max(height, LEAST), MOST))
    page.script("window.frames_seen = 0; const next = () => { window.frames_seen += 1; requestAnimationFrame(next); }; next()")
    page.until(lambda: page.script("return window.frames_seen") > 30, "charts have their size")
    driver.save_screenshot(str(FOLDER / f"{name}.png"))
    print(name, address, *page.faults(), sep="  ")


def main() -> None:
    """Draws all."""
    print(f"simulator seed {SEED}")
    simulated = simulate(JobConfig(job=JOB, steps=STEPS, start_ns=time.time_ns()), (SLOW, LOADER), seed=SEED)
    with tempfile.TemporaryDirectory(prefix="crossrank-pictures-") as folder, Service(Path(folder) / "data") as service:
        post(simulated, service.url)
        with service.client() as client:
            derived(client, JOB)
        worst = httpx.get(f"{service.url}/v1/jobs/{JOB}/stragglers", timeout=60).json()["stragglers"][0]
        driver = start_driver(WIDTH, 900)
        try:
            page = Page(driver, service.url)
            page.theme("light")
            span = finding_span(page)
            draw(page, driver, "overview", f"/?job={JOB}", "light")
            draw(page, driver, "overview-dark", f"/?job={JOB}", "dark")
            draw(page, driver, "timeline", span, "light")
            draw(page, driver, "why", f"/?job={JOB}&view=why&step={worst['steps'][0]}", "light")
            draw(page, driver, "clocks", f"/?job={JOB}&view=clocks", "light")
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
