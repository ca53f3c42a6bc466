"""Tokens: made once, shown once, stored as a hash in `<data>/tokens.json`.

A token reads `crossrank_<id>_<secret>`: 8 hex digits that name it in lists and logs, and 256 random bits. Only SHA-256 of the
secret is stored. A slow password hash would add nothing: it protects secrets that people choose, and nobody can search 2^256
random ones; a fast one keeps the check below a microsecond on every request. The fixed prefix lets secret scanners find leaks.

The file is written by `crossrank token`, also while a service runs, and only read by the service, which looks at it again when it
changed. It decides by existing: no file means that no tokens are used, a file without a valid token in it lets nobody in.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from crossrank.errors import NotFound, StoreUnavailable

Scope = Literal["ingest", "read", "admin"]
TOKENS_FILE: Final = "tokens.json"
_FORM: Final = re.compile(r"crossrank_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_NO_DIGEST: Final = "0" * 64


class Token(msgspec.Struct, frozen=True):
    """One token as stored. job: the only job it is for, None for all jobs."""

    id: str
    scope: Scope
    job: str | None
    created_ns: int
    sha256: str


class _Document(msgspec.Struct, frozen=True):
    tokens: list[Token]


@dataclass(frozen=True, slots=True)
class Tokens:
    """The valid tokens at one moment, by id."""

    by_id: dict[str, Token]

    def find(self, text: str) -> Token | None:
        """The token with this text, compared in constant time; None when there is none."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        token = self.by_id.get(form[1])
        # An unknown id takes the same path as a wrong secret.
        matches = hmac.compare_digest(_digest(form[2]), token.sha256 if token else _NO_DIGEST)
        return token if token is not None and matches else None


def read_tokens(folder: Path) -> Tokens | None:
    """The tokens of a data folder, None when it has no token file. Raises StoreUnavailable for a file that cannot be read."""
    path = folder / TOKENS_FILE
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as fault:
        raise StoreUnavailable(f"{path} cannot be read; nobody is let in until it can") from fault
    return Tokens({token.id: token for token in document.tokens})


def create_token(folder: Path, scope: Scope, job: str | None, now_ns: int) -> tuple[Token, str]:
    """Adds a token and returns it with its text, which cannot be had again. Raises StoreUnavailable."""
    with _changing(folder) as known:
        identifier = secrets.token_hex(4)
        while identifier in known:
            identifier = secrets.token_hex(4)
        secret = secrets.token_urlsafe(32)
        token = Token(identifier, scope, job, now_ns, _digest(secret))
        known[identifier] = token
    return token, f"crossrank_{identifier}_{secret}"


def revoke_token(folder: Path, identifier: str) -> None:
    """Removes a token. Raises NotFound or StoreUnavailable."""
    with _changing(folder) as known:
        if known.pop(identifier, None) is None:
            raise NotFound(f"there is no token {identifier!r}; `crossrank token list` shows them", token=identifier)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@contextmanager
def _changing(folder: Path) -> Iterator[dict[str, Token]]:
    """The tokens to change; written back whole when the block ends well. One process at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    path, beside = folder / TOKENS_FILE, folder / f"{TOKENS_FILE}.new"
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        tokens = read_tokens(folder)
        known = dict(tokens.by_id) if tokens else {}
        yield known
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(_Document(list(known.values()))), indent=1))
            file.flush()
            os.fsync(fd)
        beside.replace(path)
        os.fsync(directory)
    finally:
        os.close(directory)
