"""The one check that both doors make: who is calling, and may they do this.

Scopes: `ingest` posts, `read` asks, `admin` does both and deletes. A token for one job does not see that others exist: their
addresses answer exactly as if there were no such job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final, Literal

from crossrank.auth.rates import Rates
from crossrank.auth.tokens import TOKENS_FILE, Tokens, read_tokens
from crossrank.errors import Forbidden, Unauthenticated

Need = Literal["open", "ingest", "read", "admin"]
_LOOK_AGAIN_NS: Final = 500_000_000  # a new or revoked token counts after this


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. token_id and scope are None where no tokens are used; job: the only job they may touch, None for all."""

    token_id: str | None = None
    scope: str | None = None
    job: str | None = None


ANYBODY: Final = Caller()


class Guard:
    """Tokens of one data folder, read again when the file changed, and the rates of each."""

    def __init__(self, folder: Path, rates: Rates, monotonic_ns: Callable[[], int], *, always: bool = False) -> None:
        """always: ask for a token even when the folder has no token file (it was removed while others can reach the service).

        Raises StoreUnavailable for a token file that cannot be read.
        """
        self._folder, self._rates, self._monotonic_ns, self._always = folder, rates, monotonic_ns, always
        self._lock = Lock()
        self._stamp = self._stamp_of_file()
        self._tokens = read_tokens(folder)
        self._looked_ns = monotonic_ns()

    @property
    def uses_tokens(self) -> bool:
        """Whether a token is needed at all."""
        return self._current() is not None

    def admit(self, authorization: str, need: Need) -> Caller:
        """The caller behind an Authorization header that may do what needs this scope.

        Raises Unauthenticated, Forbidden, Overloaded (the token is over its rate; asked for `ingest` only) and StoreUnavailable.
        """
        tokens = self._current()
        if tokens is None or need == "open":
            return ANYBODY
        scheme, _, text = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise Unauthenticated("a token is needed here: header `Authorization: Bearer crossrank_...`")
        token = tokens.find(text.strip())
        if token is None:
            raise Unauthenticated("this token is not valid (mistyped, revoked, or of another service)")
        if token.scope not in ("admin", need):
            raise Forbidden(f"this token has the scope {token.scope}; {need} is needed here", scope=token.scope, need=need)
        if need == "ingest":
            self._rates.check(token.id, self._monotonic_ns())
        return Caller(token.id, token.scope, token.job)

    def charge(self, caller: Caller, *, size_bytes: int = 0, events: int = 0) -> None:
        """Counts what a caller sent against their rates."""
        if caller.token_id is not None:
            self._rates.charge(caller.token_id, self._monotonic_ns(), size_bytes=size_bytes, events=events)

    def _current(self) -> Tokens | None:
        now_ns = self._monotonic_ns()
        if now_ns - self._looked_ns >= _LOOK_AGAIN_NS:
            with self._lock:
                stamp = self._stamp_of_file()
                if stamp != self._stamp:
                    self._tokens = read_tokens(self._folder)
                    self._stamp = stamp
                self._looked_ns = now_ns
        return Tokens({}) if self._tokens is None and self._always else self._tokens

    def _stamp_of_file(self) -> tuple[int, int, int] | None:
        try:
            stat = (self._folder / TOKENS_FILE).stat()
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size
