"""Whether this machine, and the service or data folder asked for, are fit to collect and to answer."""

from __future__ import annotations

import difflib
import os
import resource
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from crossrank.auth.tokens import TOKENS_FILE, read_tokens
from crossrank.commands.check import Check
from crossrank.commands.client import HttpAnswers
from crossrank.commands.figures import count, plain, size
from crossrank.commands.source import Answers
from crossrank.errors import CrossrankError, StoreUnavailable
from crossrank.limits import Limits
from crossrank.settings import Settings

PREFIX: Final = "CROSSRANK_"
CLIENT_VARIABLES: Final = frozenset({"CROSSRANK_URL", "CROSSRANK_TOKEN"})
FILES_WANTED: Final = 4096  # connections of the ranks and their exporters, segments, log files
DISK_WANTED_SHARE: Final = 0.05
_PACKAGE: Final = Path(__file__).resolve().parents[1]


def check_machine(data: Path | None) -> Iterator[Check]:
    """What does not need a service: compiled kernels, open files, environment variables, the data folder's disk."""
    yield _kernels()
    yield _open_files()
    yield from _environment()
    if data is not None:
        yield _disk(data)
        yield _tokens(data)


def check_service(answers: Answers) -> Iterator[Check]:
    """Whether it is ready and of our version. Only a running service has something to say here."""
    if not isinstance(answers, HttpAnswers):
        return
    try:
        answers.get("/readyz", {})
        yield Check("setup", "service", "ok", f"{answers.url} takes events and answers")
    except CrossrankError as fault:
        yield Check(
            "setup",
            "service",
            "problem",
            f"{answers.url} is not ready: {plain(fault.message, 300)}",
            "look at its log and its disk",
        )
    ours = version("crossrank")
    theirs = str((answers.get("/openapi.json", {}).get("info") or {}).get("version", "unknown"))
    same = ours == theirs
    yield Check(
        "setup", "version", "ok" if same else "note", ours if same else f"the service has {plain(theirs)}, this program {ours}",
        "" if same else "install the same version on both sides",
    )  # fmt: skip
    if os.environ.get("CROSSRANK_TOKEN") and answers.url.startswith("http://") and "127.0.0.1" not in answers.url:
        yield Check(
            "setup", "token", "problem", "the token passes over the network in clear", "serve with --tls-cert and --tls-key"
        )


def _kernels() -> Check:
    waiting = [m for m in _PACKAGE.rglob("*.py") if "@njit(cache=True" in m.read_text(encoding="utf-8")]
    cold = [m for m in waiting if not any((m.parent / "__pycache__").glob(f"{m.stem}.*.nbi"))]
    if os.environ.get("NUMBA_CACHE_DIR"):
        return Check("setup", "kernels", "ok", "cached in NUMBA_CACHE_DIR")
    if cold:
        text = f"{count(len(cold), 'module')} of {len(waiting)} not compiled yet; the first requests wait for the compiler"
        return Check("setup", "kernels", "note", text, "crossrank warmup")
    return Check("setup", "kernels", "ok", f"{count(len(waiting), 'module')} compiled")


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= FILES_WANTED:
        return Check("setup", "open files", "ok", "no limit" if soft == resource.RLIM_INFINITY else f"up to {count(soft)}")
    can = hard == resource.RLIM_INFINITY or hard >= FILES_WANTED
    return Check(
        "setup", "open files", "note", f"at most {count(soft)} at once; {count(FILES_WANTED)} are wanted for thousands of ranks",
        f"ulimit -n {FILES_WANTED}, before `crossrank serve`" if can else "raise the hard limit (limits.conf, LimitNOFILE=)",
    )  # fmt: skip


def _environment() -> Iterator[Check]:
    known = {PREFIX + name.upper() for name in Settings.model_fields} | CLIENT_VARIABLES
    given = sorted(name for name in os.environ if name.startswith(PREFIX))
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            do = f"is {near[0]} meant?" if near else "docs/operations.md lists all settings"
            yield Check("setup", "settings", "problem", f"{plain(name)} is no setting and does nothing", do)
    try:
        Settings()
    except ValueError as fault:
        errors = fault.errors() if hasattr(fault, "errors") else [{"loc": ("?",), "msg": str(fault)}]
        for e in errors:
            name = PREFIX + "_".join(map(str, e["loc"])).upper()
            yield Check(
                "setup",
                "settings",
                "problem",
                f"{plain(name)}: {plain(e['msg'], 200)}",
                "correct it; the service will not start with it",
            )
        return
    told = ", ".join(plain(n) for n in given if n in known and n != "CROSSRANK_TOKEN")
    yield Check("setup", "settings", "ok", f"valid; set here: {told}" if told else "valid; all defaults")


def _disk(data: Path) -> Check:
    disk = shutil.disk_usage(data)
    text, least = f"{size(disk.free)} free of {size(disk.total)}", Limits().disk_free_bytes
    if disk.free < least:
        return Check(
            "setup", "disk", "problem", f"{text}; nothing is taken below {size(least)}", "free space, or set CROSSRANK_RETAIN_DAYS"
        )
    if disk.free < DISK_WANTED_SHARE * disk.total:
        return Check("setup", "disk", "note", text, "free space, or set CROSSRANK_RETAIN_DAYS")
    return Check("setup", "disk", "ok", text)


def _tokens(data: Path) -> Check:
    try:
        tokens = read_tokens(data)
    except StoreUnavailable as fault:
        return Check("setup", "tokens", "problem", plain(fault.message, 300), f"mend or remove {TOKENS_FILE}")
    if tokens is None:
        return Check(
            "setup", "tokens", "ok", "none: whoever reaches the service may do everything, so it listens on this machine only"
        )
    if not tokens.by_id:
        return Check("setup", "tokens", "problem", "none is valid, so nobody is let in", "crossrank token create --scope admin")
    return Check("setup", "tokens", "ok", f"{count(len(tokens.by_id))} valid")
