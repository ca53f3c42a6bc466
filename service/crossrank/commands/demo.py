"""`crossrank demo`: a service, a simulated job posted to it while it runs, and the report, compared with the truth.

64 ranks on eight hosts whose clocks are wrong by up to 50 ms and drift; one rank computes `forward` slowly for some steps, and
one data loader is slow. The job runs at its own pace, so the service derives its answers while events come in.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from crossrank import timesource
from crossrank.commands.child_service import ChildService, free_port
from crossrank.commands.client import HttpAnswers, connect
from crossrank.commands.figures import count, duration, ranges
from crossrank.commands.live import OnPosted, Pace, post_batches, post_topology
from crossrank.commands.poster import Poster, Tally
from crossrank.commands.report import fetch
from crossrank.commands.report_text import print_report
from crossrank.commands.source import job_path
from crossrank.errors import NotFound
from crossrank.simulate.config import JobConfig
from crossrank.simulate.deliver import deliver
from crossrank.simulate.faults import SlowCompute, SlowLoader
from crossrank.simulate.files import truth_with_costs
from crossrank.simulate.job import Simulated, simulate

JOB: Final = "demo"
SEED: Final = 7
STEPS: Final = 30
SLOW: Final = SlowCompute(rank=21, phase="forward", steps=(8, 15), extra_ns=25_000_000)
LOADER: Final = SlowLoader(rank=42, steps=(18, 25), extra_ns=45_000_000)
PATIENCE_S: Final = 30.0


def run_demo(*, data: Path, port: int, speed: float, once: bool) -> None:
    """Runs the demo; returns after the report when `once`, else when the service ends. Raises CrossrankError."""
    began_ns = timesource.monotonic_ns()
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, _stop)  # so that the child ends with us
    chosen = free_port(port)
    if port not in {0, chosen}:
        console.print(f"port {port} is in use (another service?); the demo listens on {chosen}")
    with ChildService(data, chosen) as service:
        # The service starts while the job is simulated.
        simulated = simulate(
            JobConfig(job=JOB, steps=STEPS, start_ns=timesource.wall_ns()),
            (SLOW, LOADER),
            seed=SEED,
        )
        with connect(service.url, Pace().workers) as client:
            answers = HttpAnswers(service.url, client)
            service.wait_ready(answers)
            console.print(f"serving on {service.url} with data folder {data}", soft_wrap=True)
            _forget_last_run(answers)
            _post(simulated, answers, console, began_ns, speed)
            console.print()
            print_report(fetch(answers, JOB), console)
        console.print()
        _print_truth(simulated, console)
        if once:
            return
        _print_links(service.url, console)
        service.wait()


def _stop(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _forget_last_run(answers: HttpAnswers) -> None:
    """Each run is a job of its own under the same name."""
    try:
        answers.delete(job_path(JOB))
    except NotFound:
        return


def _post(simulated: Simulated, answers: HttpAnswers, console: Console, began_ns: int, speed: float) -> None:
    config = simulated.config
    console.print(
        f"a training job of {count(config.world_size, 'rank')} on {count(config.hosts, 'host')} runs for {count(config.steps, 'step')} "
        "and posts its events",
        soft_wrap=True,
    )
    post_topology(answers, JOB, simulated.topology)
    poster = Poster(answers.client, answers.url, JOB, PATIENCE_S)
    with _progress(simulated.events.num_rows, console, began_ns) as on_posted:
        tally = post_batches(poster, deliver(simulated), Pace(speed), on_posted)
    console.print(f"{count(tally.accepted, 'event')} accepted, {count(tally.rejected)} rejected")


@contextmanager
def _progress(events: int, console: Console, began_ns: int) -> Iterator[OnPosted]:
    """A bar of acknowledged events on a terminal, and when the first one was acknowledged."""
    columns = (TextColumn("posting"), BarColumn(), TextColumn("{task.completed:,.0f} events"), TimeElapsedColumn())
    first = True
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("posting", total=events)

        def on_posted(tally: Tally) -> None:
            nonlocal first
            if first:
                first = False
                console.print(f"first event stored {duration(timesource.monotonic_ns() - began_ns)} after the start")
            bar.update(task, advance=tally.accepted)

        yield on_posted


def _print_truth(simulated: Simulated, console: Console) -> None:
    """What was really wrong, from the simulation: the same job, the same noise, without each fault."""
    truth: dict[str, Any] = truth_with_costs(simulated)
    slow_ns, loader_ns = truth["cost_ns"]
    lines = (
        "the truth, from simulating the same job without each fault:",
        f"  rank {SLOW.rank} computed {SLOW.phase} slowly in steps {_steps(SLOW.steps)}, which cost the job {duration(slow_ns)}",
        f"  rank {LOADER.rank} waited for its data in steps {_steps(LOADER.steps)}, which cost the job {duration(loader_ns)}",
    )
    for line in lines:
        console.print(line, style="dim", soft_wrap=True)


def _steps(steps: tuple[int, int] | None) -> str:
    return "all" if steps is None else ranges(range(steps[0], steps[1] + 1))


def _program() -> str:
    """The command as it was called, which may not be on the path."""
    return sys.argv[0] if Path(sys.argv[0]).name == "crossrank" else "crossrank"


def _print_links(url: str, console: Console) -> None:
    lines = (
        "",
        "open in a browser, or ask with curl:",
        f"  {url}/docs",
        f"  {url}{job_path(JOB, 'bottlenecks')}",
        f"  {url}{job_path(JOB, f'steps/{STEPS // 2}/critical-path')}",
        f"  {url}/metrics",
        "or in another terminal:",
        f"  {_program()} report {JOB} --url {url}",
        "",
        "serving on until Ctrl-C",
    )
    for line in lines:
        console.print(line, soft_wrap=True)
