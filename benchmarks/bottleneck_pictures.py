"""Draws the pictures of docs/bottlenecks.md: simulated jobs, one fault each, through the service and the figures of its page.

    python benchmarks/bottleneck_pictures.py

plotly.js turns each figure into a PNG in a headless Chromium (`chromium` and `chromedriver` must be there). Prints the finding that belongs
to each picture, so that the page can quote it.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import plotly
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.encode import ARROW_TYPE, arrow_stream
from crossrank.simulate.faults import Fault, GcPause, SlowCompute, SlowLink, SlowLoader
from crossrank.simulate.job import simulate
from tests.support.browser import start_driver
from tests.support.checkpoints import with_checkpoints
from tests.support.inprocess import InProcess

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SIZE = {"width": 720, "height": 260}
TALL = {"width": 720, "height": 480}  # two panels
_SCRIPT = """
const [figure, size, done] = arguments;
const layout = Object.assign({}, figure.layout, {autosize: false}, size);
Plotly.toImage({data: figure.data, layout}, {format: 'png', scale: 1.25, ...size}).then(done, e => done('failed: ' + e));
"""


def _as_it_is(events: pa.Table) -> pa.Table:
    return events


@dataclass(frozen=True, slots=True)
class Picture:
    """One class of finding: the job that has it, and the figure that shows it."""

    class_: str
    figure: str
    config: JobConfig
    faults: tuple[Fault, ...] = ()
    by: str = "step"
    change: Callable[[pa.Table], pa.Table] = field(default=_as_it_is)


PLAIN = JobConfig(dp=8, tp=2, pp=1, steps=24)
PIPELINE = JobConfig(dp=2, tp=2, pp=4, steps=12)
PICTURES = (
    Picture("straggler", "heatmap", PLAIN, (SlowCompute(rank=5, phase="forward", steps=(8, 15), extra_ns=8_000_000),)),
    Picture(
        "straggler_host",
        "heatmap",
        replace(PLAIN, ranks_per_host=4),
        tuple(SlowCompute(rank=r, phase="forward", steps=(8, 15), extra_ns=8_000_000) for r in range(4, 8)),
    ),
    Picture("data_stall", "breakdown", PLAIN, (SlowLoader(rank=9, steps=(6, 17), extra_ns=60_000_000),), by="rank"),
    Picture("jitter", "heatmap", PLAIN, (GcPause(rank=3, probability=0.35),)),
    Picture("slow_link", "bandwidth", replace(PLAIN, tp=4), (SlowLink(group="dp1", steps=(4, 23), factor=2.5),)),
    Picture("checkpoint_stall", "breakdown", PLAIN, change=lambda events: with_checkpoints(events, (7, 15), 300_000_000)),
    Picture("pipeline_bubble", "breakdown", PIPELINE, by="rank"),
    Picture(
        "imbalance",
        "breakdown",
        PIPELINE,
        tuple(SlowCompute(rank=r, phase=p, factor=1.4) for r in range(8, 12) for p in ("forward", "backward")),  # type: ignore[arg-type]
        by="rank",
    ),
    Picture("exposed_communication", "breakdown", replace(PLAIN, network_gbs=4.0)),
    Picture("clock", "clocks", replace(PLAIN, ranks_per_host=4, clocks=ClockConfig(step_fraction=0.5))),
)


def figure_of(picture: Picture) -> tuple[dict[str, Any], list[str]]:
    """The figure as the page gets it, and the sentences of its findings of this class."""
    config = replace(picture.config, job=picture.class_)
    events = picture.change(simulate(config, picture.faults, seed=3).events)
    with tempfile.TemporaryDirectory(prefix="crossrank-pictures-") as folder, InProcess(Path(folder) / "data") as service:
        service.post("/v1/events", arrow_stream(events), ARROW_TYPE)
        service.derive(config.job)
        figure = service.get(f"/v1/jobs/{config.job}/figures/{picture.figure}", by=picture.by)
        found = service.get(f"/v1/jobs/{config.job}/bottlenecks")["findings"]
    return figure, [f["sentence"] for f in found if f["class"] == picture.class_]


def main() -> None:
    """Draws all, or those named as arguments."""
    wanted = [p for p in PICTURES if not sys.argv[1:] or p.class_ in sys.argv[1:]]
    driver = start_driver()
    try:
        driver.set_script_timeout(60)
        driver.get("data:text/html,<title>pictures</title>")
        driver.execute_script((Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_text())
        for picture in wanted:
            figure, sentences = figure_of(picture)
            image = driver.execute_async_script(_SCRIPT, figure, TALL if picture.figure == "clocks" else SIZE)
            data = base64.b64decode(image.removeprefix("data:image/png;base64,"), validate=True)
            (FOLDER / f"bottleneck-{picture.class_}.png").write_bytes(data)
            print(f"{picture.class_} ({len(data) // 1024} KiB)", *sentences, sep="\n  ")
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
