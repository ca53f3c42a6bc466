"""`crossrank simulate`: a made-up training job with a known truth, to files or to a service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crossrank.commands.client import HttpAnswers, base_url, connect
from crossrank.commands.fault_option import parse_fault
from crossrank.commands.figures import count
from crossrank.commands.live import Pace, post_batches, post_topology
from crossrank.commands.poster import Poster, Tally
from crossrank.commands.reading import waiting
from crossrank.errors import BadParameter
from crossrank.simulate.config import JobConfig
from crossrank.simulate.deliver import deliver
from crossrank.simulate.files import write_job
from crossrank.simulate.job import Simulated, simulate

PATIENCE_S = 60.0


def run_simulate(
    *, output: Path | None, url: str | None, job: str, seed: int, dp: int, tp: int, pp: int, steps: int, faults: Sequence[str]
) -> None:
    """Runs the command and prints what was made. Raises BadParameter for a job or fault that cannot be, and as `send` for --url."""
    if output is None and url is None:
        raise BadParameter("say where the events shall go: -o DIR for files, --url for a service, or both", field="output")
    config = JobConfig(job=job, dp=dp, tp=tp, pp=pp, steps=steps)
    drawn = [parse_fault(text) for text in faults]
    with waiting("simulating"):
        simulated = simulate(config, drawn, seed=seed)
    print(f"simulated {count(config.world_size, 'rank')} on {count(config.hosts, 'host')}, {count(steps, 'step')}, seed {seed}")
    if output is not None:
        _write(simulated, output)
    if url is not None:
        with waiting("posting"):
            tally = post(simulated, url)
        print(f"posted {count(tally.accepted, 'event')}, {count(tally.duplicate)} known already, {count(tally.rejected)} rejected")


def _write(simulated: Simulated, folder: Path) -> None:
    try:
        with waiting("writing"):
            paths = write_job(simulated, folder)
    except OSError as fault:
        raise BadParameter(f"cannot write to {folder}: {fault}", field="output") from fault
    print(f"wrote {count(simulated.events.num_rows, 'event')} to {count(len(paths), 'file')} in {folder}, the truth to truth.json")


def post(simulated: Simulated, url: str) -> Tally:
    """Posts a job as fast as the service takes it. Raises Unreachable, Overloaded, StoreUnavailable or what else it answers."""
    with connect(url, Pace().workers) as client:
        answers = HttpAnswers(url, client)
        post_topology(answers, simulated.config.job, simulated.topology)
        poster = Poster(client, base_url(url), simulated.config.job, PATIENCE_S)
        return post_batches(poster, deliver(simulated), Pace(), lambda _: None)
