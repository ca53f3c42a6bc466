"""`crossrank top`, `why`, `doctor` and `profile`: options and help here, the work in modules of those names, imported only when one runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from crossrank.commands.options import Folder, Job, Url

EXIT_PROBLEMS: Final = 8
EXIT_UNTRACED: Final = 9

watching = typer.Typer()


@watching.command()
def top(
    job: Job,
    url: Url = None,
    data: Folder = None,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.2, max=3600, help="How often to look.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one frame and end; so it does when nobody watches a terminal.")
    ] = False,
) -> None:
    """Watch a job while it runs: step times, findings, ranks that fall behind, hangs, events coming in. q or Ctrl-C ends it.

    crossrank top llm
    crossrank top llm --once --url http://collector:4318
    """
    from crossrank.commands.top import run_top

    run_top(job, url=url, data=data, every_s=every, once=once)


@watching.command()
def why(
    job: Job,
    step: Annotated[int, typer.Argument(metavar="STEP", help="The step's number.")],
    url: Url = None,
    data: Folder = None,
    save: Annotated[
        int, typer.Option("--save", metavar="N", min=0, max=20, help="For how many of the largest causes to predict the saving.")
    ] = 3,
    all_: Annotated[bool, typer.Option("--all", help="Show every stretch of the path, also those below 1 % of the step.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answers as one JSON object.")] = False,
) -> None:
    """Tell why a step took as long as it did: who held it up, doing what, how long, and what removing it would save.

    crossrank why llm 12
    crossrank why llm 12 --all --save 5
    """
    from crossrank.commands.why import run_why

    run_why(job, step, url=url, data=data, save=save, show_all=all_, as_json=as_json)


@watching.command()
def doctor(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="A job whose clocks and data to check; all when left out.")
    ] = None,
    url: Url = None,
    data: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as one JSON object.")] = False,
) -> None:
    """Check the set-up, the clocks and the data, and say what to do or to collect next. Exit code 8 when there are problems.

    crossrank doctor
    crossrank doctor llm --data ./data
    """
    from crossrank.commands.doctor import run_doctor

    if run_doctor(job, url=url, data=data, as_json=as_json):
        raise typer.Exit(EXIT_PROBLEMS)


@watching.command()
def profile(
    job: Job,
    url: Url = None,
    ranks: Annotated[str | None, typer.Option("--ranks", metavar="0,3,8-15", help="Which ranks.")] = None,
    steps: Annotated[
        str, typer.Option("--steps", metavar="N|A-B", help="How many of their next steps, at most 100; or by number: 100-105.")
    ] = "2",
    auto: Annotated[
        bool, typer.Option("--auto", help="Let the service choose the few ranks that tell most; so it does without --ranks.")
    ] = False,
    most: Annotated[int | None, typer.Option("--most", metavar="N", min=1, max=1024, help="How many it may choose; 3.")] = None,
    state: Annotated[bool, typer.Option("--state", help="Ask for nothing; say how far the last request is.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until every trace is in.")] = False,
    wait_s: Annotated[float, typer.Option("--for", metavar="SECONDS", min=0, max=86_400, help="How long to wait.")] = 600.0,
    data: Annotated[Path | None, typer.Option("--data", hidden=True)] = None,
) -> None:
    """Have running ranks profile their next steps with torch.profiler, and join the traces to their spans.

    Needs a running service, and there a token of scope `admin` if it has tokens.
    Exit code 9 when not every trace has come within the time of --wait.

    crossrank profile llm --wait
    crossrank profile llm --ranks 0,8-15 --steps 4
    """
    from crossrank.commands.profile import run_profile

    waiting_s = wait_s if wait else None
    if not run_profile(job, url=url, data=data, ranks=ranks, steps=steps, auto=auto, most=most, state=state, wait_s=waiting_s):
        raise typer.Exit(EXIT_UNTRACED)
