"""Options and arguments that several commands share: one name, one meaning, one help text. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="CROSSRANK_URL", show_default="http://127.0.0.1:4318", help="A running service."),
]
Folder = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Read this data folder here, without a running service.")
]
OwnFolder = Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder; no service may run on it.")]
From = Annotated[int | None, typer.Option("--from", metavar="STEP", help="First step to look at.")]
To = Annotated[int | None, typer.Option("--to", metavar="STEP", help="Last step to look at.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, as `crossrank ls` shows it.")]
Host = Annotated[str, typer.Option("--host", metavar="H", help="Address to listen on.")]
Port = Annotated[int, typer.Option("--port", metavar="P", min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
