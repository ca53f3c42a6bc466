"""The `crossrank` program: options and help here, the work in `commands`, imported only when a command runs.

So `crossrank --help` answers at once. A fault that a user can cause or meet becomes one line on stderr and an exit code that
scripts can rely on; a traceback is left to our own mistakes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from crossrank import errors
from crossrank.commands.options import Folder, From, Host, Job, OwnFolder, Port, To, Url
from crossrank.commands.output import EXIT_CLOSED, CheckedGroup, OutputFault, flush_output, one_line, prepare_output
from crossrank.commands.token_app import token
from crossrank.commands.watch_app import watching

EXIT_CODES: Final[dict[type[errors.CrossrankError], int]] = {
    errors.BadParameter: 2,
    errors.Unreachable: 3,
    errors.NotFound: 4,
    errors.Damaged: 7,
    errors.CrossrankError: 5,  # anything else the service or the data folder refused
}
EXIT_REJECTED: Final = 6
EXIT_STOPPED: Final = 130

app = typer.Typer(
    name="crossrank",
    cls=CheckedGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    epilog="Exit codes: 0 done, 2 wrong usage, 3 no service answers, 4 no such job, 5 refused, 6 done but some events were "
    "rejected, 7 damage found, 8 doctor found problems, 9 not every profile came, 130 stopped by Ctrl-C, "
    "141 the reader of the output went away",
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"crossrank {version('crossrank')}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Tells which rank, in which phase, delayed which training step, by how much, and how sure that is.

    crossrank demo                           a simulated job, live, and its report
    crossrank serve --data data              collect events on 127.0.0.1:4318
    crossrank send 'traces/*.gz' --job llm   post recorded events
    crossrank report llm                     what slowed the job down
    """


@app.command()
def serve(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder that holds everything; made when absent.")] = Path(
        "data"
    ),
    host: Host = "127.0.0.1",
    port: Port = 4318,
    grpc_port: Annotated[
        int | None,
        typer.Option("--grpc-port", metavar="P", min=0, max=65535, show_default="4317 beside 4318", help="Port for OTLP/gRPC."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate chain for HTTPS (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow a --host that other machines reach although there are no tokens.")
    ] = False,
) -> None:
    """Collect events and answer questions about them, until Ctrl-C.

    Ranks post to http://HOST:PORT/v1/events (JSON lines) or /v1/traces (OpenTelemetry), or by gRPC.
    The interface is described at http://HOST:PORT/docs.
    Other machines may reach it once there are tokens: `crossrank token create --help`.
    """
    from crossrank.commands.serve import serve as run

    run(data=data, host=host, port=port, grpc_port=grpc_port, tls_cert=tls_cert, tls_key=tls_key, insecure=insecure or None)


@app.command()
def send(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Event files, folders of them, or patterns in quotes.")],
    job: Annotated[str | None, typer.Option("--job", metavar="J", help="The job of events that do not name theirs.")] = None,
    url: Url = None,
    workers: Annotated[int, typer.Option("--workers", min=1, max=64, help="Requests in flight at once.")] = 4,
    restart: Annotated[bool, typer.Option("--restart", help="Send from the start whatever an earlier run has sent.")] = False,
    retry_for: Annotated[
        float,
        typer.Option(
            "--retry-for", metavar="SECONDS", min=0, help="How long a batch is tried again while the service is away or busy."
        ),
    ] = 60.0,
) -> None:
    """Post recorded events: one JSON object a line, plain, gzip or zstd.

    Run the same command again after an interruption: it goes on behind the last acknowledged batch.
    Sending twice is harmless, the service knows the events it has.

    crossrank send traces/ --job llm
    crossrank send 'traces/rank*.zst' --job llm --url http://collector:4318
    """
    from crossrank.commands.send_text import run_send

    if run_send(files, job=job, url=url, workers=workers, restart=restart, patience_s=retry_for):
        raise typer.Exit(EXIT_REJECTED)


@app.command(name="import")
def import_recordings(
    format_: Annotated[
        str, typer.Argument(metavar="FORMAT", help="kineto, flight_recorder, nccl_inspector, chakra, whatif or crossrank.")
    ],
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help="Recorded files, folders of them, or patterns in quotes.")],
    job: Annotated[str, typer.Option("--job", metavar="J", help="The job they belong to.")],
    rank: Annotated[int | None, typer.Option("--rank", metavar="N", min=0, help="Whose file it is, where it does not say.")] = None,
    url: Url = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Import into this folder, without a running service.")
    ] = None,
    retry_for: Annotated[
        float, typer.Option("--retry-for", metavar="SECONDS", min=0, help="How long to try while the service is away or busy.")
    ] = 60.0,
) -> None:
    """Import what other tools recorded: profiler traces, flight recorder dumps and more.

    The rank comes from the file, from its name (rank3.json), or from --rank.

    crossrank import kineto 'traces/*.json.gz' --job llm
    crossrank import flight_recorder dumps/ --job llm --data ./data
    """
    from crossrank.commands.import_ import run_import

    if run_import(format_, files, job=job, rank=rank, url=url, data=data, patience_s=retry_for):
        raise typer.Exit(EXIT_REJECTED)


@app.command()
def report(
    job: Job,
    url: Url = None,
    data: Folder = None,
    first: From = None,
    last: To = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers the report is made of as one JSON object.")] = False,
) -> None:
    """Say what slowed a job down: the costliest findings first, then the ranks, steps and clocks behind them.

    crossrank report llm
    crossrank report llm --from 100 --to 200
    crossrank report llm --data ./data --json
    """
    from crossrank.commands.report import run_report

    run_report(job, url=url, data=data, first=first, last=last, as_json=as_json)


@app.command()
def diff(
    base: Annotated[str, typer.Argument(metavar="A", help="The job before.")],
    job: Annotated[str, typer.Argument(metavar="B", help="The job after; the same name compares steps of one job.")],
    url: Url = None,
    data: Folder = None,
    base_from: Annotated[int | None, typer.Option("--base-from", metavar="STEP", help="First step of A.")] = None,
    base_to: Annotated[int | None, typer.Option("--base-to", metavar="STEP", help="Last step of A.")] = None,
    first: From = None,
    last: To = None,
    fail_over: Annotated[
        str | None, typer.Option("--fail-over", metavar="PERCENT", help="End with code 1 when steps got slower by more than this.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say what moved on the critical path between two jobs, or two ranges of steps of one; a gate for CI.

    crossrank diff nightly-41 nightly-42 --fail-over 3%
    crossrank diff llm llm --base-to 99 --from 100
    """
    from crossrank.commands.diff import run_diff

    slower = run_diff(
        base, job, url=url, data=data, base_range=(base_from, base_to), asked=(first, last), fail_over=fail_over, as_json=as_json
    )
    if slower:
        raise typer.Exit(1)


@app.command()
def scaling(
    jobs: Annotated[list[str], typer.Argument(metavar="A B C...", help="Jobs of at least two world sizes.")],
    url: Url = None,
    data: Folder = None,
    mode: Annotated[
        str | None, typer.Option("--mode", metavar="M", help="strong (the same work) or weak (the same for each rank).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say how a job scales with its ranks, which part of it is not divided, and what the rest is lost to.

    crossrank scaling llm-8 llm-64 llm-512
    """
    from crossrank.commands.scaling import run_scaling

    run_scaling(jobs, url=url, data=data, mode=mode, as_json=as_json)


@app.command()
def export(
    job: Job,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="PATH", help="Folder of the Parquet files, made when absent; or the trace file."),
    ],
    format_: Annotated[str, typer.Option("--format", metavar="F", help="parquet, perfetto or chrome.")] = "parquet",
    url: Url = None,
    data: Folder = None,
    first: From = None,
    last: To = None,
    ranks: Annotated[str | None, typer.Option("--ranks", metavar="0,8-15", help="Ranks of a trace.")] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="K", min=1, show_default="16", help="So many ranks in a trace: those that tell most."),
    ] = None,
    aligned: Annotated[
        str, typer.Option("--aligned", metavar="HOW", help="Times in a trace: repaired, fit (clocks only) or raw.")
    ] = "repaired",
) -> None:
    """Write a job as Parquet for data frames, or chosen ranks of it as a trace to look at in Perfetto.

    Parquet holds all events, raw and aligned times side by side, for pandas, polars, DuckDB or Spark.
    A trace holds the slow ranks and those on the critical path first, with arrows from whom others waited for.

    crossrank export llm -o lake/ --from 100 --to 200
    crossrank export llm -o llm.pftrace --format perfetto --from 100 --to 110
    crossrank export llm -o llm.json --format chrome --ranks 0,8-15 --data ./data
    """
    from crossrank.commands.export_trace import run_export_as

    run_export_as(format_, job, output, url=url, data=data, steps=(first, last), ranks=ranks, top=top, aligned=aligned)


@app.command(name="ls")
def list_jobs(url: Url = None, data: Folder = None) -> None:
    """List the jobs a service or a data folder holds: whether each runs or hangs, and its top finding once it was asked about."""
    from crossrank.commands.jobs import run_list

    run_list(url=url, data=data)


@app.command()
def simulate(
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write event files, truth.json and topology.json here.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="Post the events to this service.")] = None,
    job: Annotated[str, typer.Option("--job", metavar="J", help="Name of the job.")] = "simulated",
    seed: Annotated[int, typer.Option("--seed", help="The same seed draws the same noise, with and without faults.")] = 0,
    dp: Annotated[int, typer.Option("--dp", min=1, help="Data parallel size.")] = 4,
    tp: Annotated[int, typer.Option("--tp", min=1, help="Tensor parallel size.")] = 4,
    pp: Annotated[int, typer.Option("--pp", min=1, help="Pipeline parallel size.")] = 4,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps.")] = 20,
    fault: Annotated[
        list[str] | None, typer.Option("--fault", metavar="KIND:key=value,...", help="Something that goes wrong; repeatable.")
    ] = None,
) -> None:
    """Make up a training job with wrong clocks and known faults, to try crossrank on.

    Kinds of fault and their keys:
      slow     rank phase steps extra factor    one rank computes slowly
      loader   rank steps extra                 one rank waits for its data
      link     src dst group steps factor extra a slow connection
      pause    rank steps probability pause     one rank stops now and then
      hang     rank step where                  one rank stops for good
      skip     rank step scope index            a collective is left out
      size     rank step scope index            a collective of another size
      missing  rank                             nothing of one rank arrives
      lost     fraction rank                    some events are lost

    crossrank simulate -o traces/ --fault slow:rank=5,steps=10-19,extra=30ms
    crossrank simulate --url http://127.0.0.1:4318 --fault missing:rank=7
    """
    from crossrank.commands.simulate import run_simulate

    run_simulate(output=output, url=url, job=job, seed=seed, dp=dp, tp=tp, pp=pp, steps=steps, faults=fault or [])


@app.command()
def demo(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Folder of the demo's data.")] = Path("data/demo"),
    port: Port = 4318,
    speed: Annotated[
        float, typer.Option("--speed", metavar="X", min=0.1, help="How many times faster than life the job runs.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Stop after the report instead of serving on.")] = False,
) -> None:
    """Start a service, post a simulated 64-rank job to it while it runs, print the report, and keep serving until Ctrl-C.

    The job has eight hosts with wrong, drifting clocks, one rank that computes slowly for some steps, and one slow data loader.
    """
    from crossrank.commands.demo import run_demo

    run_demo(data=data, port=port, speed=speed, once=once)


@app.command()
def stats(url: Url = None, data: Folder = None) -> None:
    """Show every counter and size of a service, or the sizes of a data folder, with what each means."""
    from crossrank.commands.stats import run_stats

    run_stats(url=url, data=data)


@app.command()
def verify(data: OwnFolder = Path("data")) -> None:
    """Read everything in a data folder and say what is damaged, without changing it. Stop its service first.

    Exit code 7 when something that was stored is missing or not as it was written.
    """
    from crossrank.commands.verify import run_verify

    run_verify(data)


@app.command()
def rebuild(data: OwnFolder = Path("data")) -> None:
    """Make a new catalog from the segments when catalog.duckdb is lost or damaged. Stop its service first.

    The old catalog and segments that cannot be read go to DIR/quarantine. The log is kept and replayed at the next start.
    """
    from crossrank.commands.rebuild import run_rebuild

    run_rebuild(data)


@app.command()
def warmup() -> None:
    """Compile every kernel now and keep the result, so that no request and no report waits for it.

    Run once after installing; `make install` and the container image do.
    """
    from crossrank.commands.warmup import run_warmup

    run_warmup()


app.add_typer(token, name="token")
app.add_typer(watching)


def main() -> None:
    """Runs the program; the entry point of the package."""
    prepare_output()
    try:
        try:
            app()
        finally:
            flush_output()
    except errors.CrossrankError as fault:
        sys.stderr.write(f"crossrank: {one_line(fault.message)}\n")
        sys.exit(next(code for kind, code in EXIT_CODES.items() if isinstance(fault, kind)))
    except OutputFault as fault:
        sys.exit(EXIT_CLOSED if fault.closed else fault.say())
    except KeyboardInterrupt:
        sys.exit(EXIT_STOPPED)


if __name__ == "__main__":
    main()
