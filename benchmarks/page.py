"""How fast the page is in a real browser: a job of 1,024 ranks and a million spans, a real service, headless Chromium.

First paint counts from the navigation to the first canvas with the service's data on it; pan and zoom from the input event to the
frame that shows the new data (moves that need data only); frames while the picture is dragged; the heatmap from asking for it to
the drawn image; memory of the page after all of it (its heap, and the memory of its process that it shares with nobody).

Beside the pans and zooms stands the processor time that they took in the service and in the browser together: unlike the times on
the clock it does not grow when other work has the cores.

    python benchmarks/page.py [--moves N]
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import httpx
from _big_job import JOB, fill, open_big
from _measure import percentile
from _results import Results
from _service import Service, service

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.support.browser import Page, start_driver

RANKS, STEPS, SPANS = 1024, 50, 20
HEAT_STEPS = 1000
LOADS = 5
SEED = 5

FIRST_PAINT = """
const done = arguments[0];
const look = () => { const root = document.querySelector('.timeline[data-ready="1"]');
  if (root && root.timelineView.stats.firstShown) done(root.timelineView.stats.firstShown); else setTimeout(look, 4); };
look();
"""
MOVES = """
const [moves, seed, done] = arguments;
const {view, tiles, stats} = document.querySelector('.timeline').timelineView;
const canvas = document.querySelector('[data-test="timeline-canvas"]');
const box = canvas.getBoundingClientRect();
let state = seed;
const random = () => { state = (state * 48271) % 2147483647; return state / 2147483647; };
const times = {pan: [], zoom: []};
const wheel = options => canvas.dispatchEvent(new WheelEvent('wheel', {bubbles: true, cancelable: true, clientY: box.top + 200, ...options}));
const shown = since => new Promise(resolve => { const look = () => (stats.shown > since ? resolve(stats.shown - since) : requestAnimationFrame(look)); look(); });
(async () => {
  for (let n = 0; n < moves; n += 1) {
    const zooms = n % 2 === 0;
    if (n % 12 === 0) { view.showAll(); wheel({deltaY: 1, clientX: box.left + 600}); await shown(performance.now() - 1e9); await new Promise(r => setTimeout(r, 300)); }
    const before = JSON.stringify(tiles.wanted);
    const began = performance.now();
    if (zooms) wheel({deltaY: n % 8 < 4 ? -500 : 430, clientX: box.left + 200 + random() * 900});
    else wheel({deltaX: (random() < 0.5 ? -1 : 1) * (500 + 400 * random()), deltaY: (random() - 0.5) * 900, clientX: box.left + 600});
    const needsData = JSON.stringify(tiles.wanted) !== before && !tiles.lookUp(tiles.wanted);
    const took = await shown(began);
    if (needsData) times[zooms ? 'zoom' : 'pan'].push(took);
    await new Promise(r => setTimeout(r, 60));
  }
  done(times);
})();
"""
FRAMES = """
const [seconds, done] = arguments;
const canvas = document.querySelector('[data-test="timeline-canvas"]');
const box = canvas.getBoundingClientRect();
const point = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, {bubbles: true, button: 0, pointerId: 1, clientX: box.left + x, clientY: box.top + y}));
const gaps = []; let last = null; const began = performance.now(); let x = 700, way = -6;
canvas.setPointerCapture = () => {};
point('pointerdown', x, 200);
const frame = now => {
  if (last !== null) gaps.push(now - last);
  last = now; x += way; if (x < 250 || x > 1100) way = -way;
  point('pointermove', x, 200 + (x % 40));
  if (now - began < seconds * 1000) requestAnimationFrame(frame); else { point('pointerup', x, 200); done(gaps); }
};
requestAnimationFrame(frame);
"""
HEATMAP = """
const done = arguments[0];
const look = () => {
  const image = document.querySelector('[data-test="heatmap"] .heatmaplayer image');
  const asked = performance.getEntriesByType('resource').find(e => e.name.includes('/figures/heatmap'));
  if (image && asked) done([performance.now() - asked.startTime, performance.now()]); else setTimeout(look, 4);
};
look();
"""


def prepare(data: Path) -> None:
    """The job with a million spans."""
    store = open_big(data)
    fill(store, ranks=RANKS, steps=STEPS, spans=SPANS)
    store.close()


def prepare_wide(data: Path) -> None:
    """A job for the heatmap: 1,024 ranks and 1,000 steps."""
    store = open_big(data)
    fill(store, ranks=RANKS, steps=HEAT_STEPS, spans=2)
    store.close()


def derived(server: Service) -> None:
    began = time.perf_counter()
    httpx.post(f"{server.url}/v1/jobs/{JOB}/derive?wait=true", timeout=600).raise_for_status()
    sys.stderr.write(f"derived in {time.perf_counter() - began:.1f} s\n")


def family(ancestor: int) -> list[int]:
    """A process and all that it has started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [ancestor]
    for pid in found:
        found += children.get(pid, [])
    return found


def processor_s(*ancestors: int) -> float:
    """Processor time that processes and all that they started have taken so far."""
    ticks = 0
    for pid in (pid for ancestor in ancestors for pid in family(ancestor)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def own_mb(driver) -> float:
    """Memory of the page's process that it shares with nobody, MB = 1e6 bytes: the largest of the browser's renderers."""
    largest = 0.0
    for pid in family(driver.service.process.pid):
        try:
            if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes():
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                private = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private"))
                largest = max(largest, private * 1024 / 1e6)
        except OSError:
            continue
    return largest


def measure_timeline(server: Service, moves: int, results: Results) -> None:
    driver = start_driver()
    try:
        page = Page(driver, server.url)
        paints = []
        for _ in range(LOADS):
            page.open(f"/?job={JOB}&view=timeline")
            paints.append(driver.execute_async_script(FIRST_PAINT) / 1e3)
        results.add("timeline: first paint, first load", paints[0], "s", at_most=2)
        results.add("timeline: first paint, median of loads", percentile(paints, 0.5), "s", at_most=2)
        print(f"moves by seed {SEED}")
        before_s = processor_s(server.pid, driver.service.process.pid)
        times = driver.execute_async_script(MOVES, moves, SEED)
        took_s = processor_s(server.pid, driver.service.process.pid) - before_s
        results.add("timeline: processor time of service and browser for a move, mean", 1e3 * took_s / moves, "ms")
        for what, found in times.items():
            results.add(f"timeline: {what} to new data on the screen, p50 of {len(found)}", percentile(found, 0.5), "ms")
            results.add(f"timeline: {what} to new data on the screen, p95", percentile(found, 0.95), "ms", at_most=150)
        heap_mb = page.script("return performance.memory.usedJSHeapSize") / 1e6
        page.open(f"/?job={JOB}&view=timeline&step=10")
        driver.execute_async_script(FIRST_PAINT)
        gaps = driver.execute_async_script(FRAMES, 4)
        results.add("timeline: frames while dragging", 1000 * len(gaps) / sum(gaps), "1/s", at_least=58)
        results.add("timeline: time between frames, p95", percentile(gaps, 0.95), "ms")
        results.add("timeline: heap of the page after all moves", heap_mb, "MB", at_most=500)
        results.add("timeline: memory of the page's process afterwards", own_mb(driver), "MB", at_most=500)
        paints = []
        for _ in range(LOADS):
            page.open(f"/?job={JOB}")
            page.one('[data-test="finding"], [data-test="findings"], #findings .empty')
            paints.append(page.script("return performance.now()") / 1e3)
        results.add("overview: findings in words, median of loads", percentile(paints, 0.5), "s", at_most=2)
        print("complaints of the browser:", page.faults())
    finally:
        driver.quit()


def measure_heatmap(server: Service, results: Results) -> None:
    driver = start_driver()
    try:
        page = Page(driver, server.url)
        drawn, since_start = [], []
        for _ in range(LOADS):
            page.open(f"/?job={JOB}")
            asked, start = driver.execute_async_script(HEATMAP)
            drawn.append(asked / 1e3)
            since_start.append(start / 1e3)
        what = f"heatmap of {RANKS:,} ranks by {HEAT_STEPS:,} steps"
        results.add(f"{what}: asked to drawn, first load", drawn[0], "s")
        results.add(f"{what}: asked to drawn, median of loads", percentile(drawn, 0.5), "s", at_most=1)
        results.add(f"{what}: from the navigation, median of loads", percentile(since_start, 0.5), "s")
        results.add("overview: memory of the page's process afterwards", own_mb(driver), "MB", at_most=500)
    finally:
        driver.quit()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--moves", type=int, default=120)
    moves = parser.parse_args().moves
    results = Results("page")
    results.add(f"machine: load average of the last minute on {os.cpu_count()} cores, at the start", os.getloadavg()[0], "")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped before the end; what was measured is kept"))
    try:
        with service(prepare) as server:
            derived(server)
            measure_timeline(server, moves, results)
        with service(prepare_wide) as server:
            derived(server)
            measure_heatmap(server, results)
    finally:
        results.finish()


if __name__ == "__main__":
    main()
