"""`crossrank token ...`: the options and help of its commands; the work is in `tokens`, imported only when one runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

token = typer.Typer(
    no_args_is_help=True, help="Make, list and revoke the tokens of a data folder, also while a service runs on it."
)
TokenFolder = Annotated[Path, typer.Option("--data", metavar="DIR", help="The service's data folder.")]


@token.command("create")
def create_token(
    scope: Annotated[str, typer.Option("--scope", metavar="ingest|read|admin", help="What it allows: post, ask, or everything.")],
    job: Annotated[str | None, typer.Option("--job", metavar="J", help="The only job it is for; all jobs when not given.")] = None,
    data: TokenFolder = Path("data"),
) -> None:
    """Make a token and print it, once: only its hash is kept.

    From the first token on, every request needs one: header `Authorization: Bearer TOKEN`, for the commands the environment
    variable CROSSRANK_TOKEN, for exporters OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20TOKEN".
    """
    from crossrank.commands.tokens import run_create

    run_create(data, scope=scope, job=job)


@token.command("list")
def list_tokens(data: TokenFolder = Path("data")) -> None:
    """List the tokens: id, scope, job, when made."""
    from crossrank.commands.tokens import run_list

    run_list(data)


@token.command("revoke")
def revoke_token(
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `crossrank token list` shows it.")],
    data: TokenFolder = Path("data"),
) -> None:
    """Make a token invalid; a running service notices within a second."""
    from crossrank.commands.tokens import run_revoke

    run_revoke(data, identifier)
