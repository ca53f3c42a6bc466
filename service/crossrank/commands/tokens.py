"""`crossrank token`: the tokens of a data folder."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from crossrank import timesource
from crossrank.auth.tokens import TOKENS_FILE, Scope, create_token, read_tokens, revoke_token
from crossrank.commands.figures import plain
from crossrank.errors import BadParameter


def run_create(folder: Path, *, scope: str, job: str | None) -> None:
    """Makes a token and prints it alone on stdout, so that scripts can take it. Raises BadParameter or StoreUnavailable."""
    if scope not in get_args(Scope):
        raise BadParameter(f"--scope {scope}: one of {', '.join(get_args(Scope))}", field="scope")
    if job == "":
        raise BadParameter("--job: a job's name is not empty", field="job")
    _, text = create_token(folder, scope, job, timesource.wall_ns())  # type: ignore[arg-type]  # checked above
    print(text)


def run_list(folder: Path) -> None:
    """Prints one line a token, oldest first. Raises StoreUnavailable."""
    tokens = read_tokens(folder)
    if tokens is None:
        print(f"no tokens: {folder / TOKENS_FILE} does not exist, so whoever reaches the service may do everything")
        return
    for t in sorted(tokens.by_id.values(), key=lambda t: (t.created_ns, t.id)):
        made = datetime.fromtimestamp(t.created_ns // 1_000_000_000, UTC)
        print(f"{t.id}  {t.scope:<6}  {made:%Y-%m-%d %H:%M:%S} UTC  {'all jobs' if t.job is None else 'job ' + plain(t.job, 60)}")
    if not tokens.by_id:
        print("no valid token is left, so nobody is let in")


def run_revoke(folder: Path, identifier: str) -> None:
    """Makes a token invalid. Raises NotFound or StoreUnavailable."""
    revoke_token(folder, identifier)
    print(f"token {identifier} is no longer valid")
