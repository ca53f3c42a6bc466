"""The rules of identity and merging, one event at a time and without cleverness: what the store must agree with.

A version is a dict of event columns. `Oracle` receives them in log order, as the store does; `naive_merge` is what one identity's
versions come to.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from crossrank.model.flags import EventFlag

Version = dict[str, Any]
_STORE_FLAGS = int(EventFlag.CONFLICT | EventFlag.AMENDS | EventFlag.JOINED)


def form(version: Version) -> str:
    """open, end or closed."""
    if version["start_ns"] is None:
        return "end"
    return "open" if version["end_ns"] is None else "closed"


def content(version: Version) -> str:
    """All that was sent."""
    sent = {k: v for k, v in version.items() if k != "received_ns" and v is not None}
    sent["flags"] = version["flags"] & ~_STORE_FLAGS
    return json.dumps(sent, sort_keys=True, default=repr)


def naive_merge(versions: Sequence[Version]) -> Version:
    """One row out of the versions of one identity, given in order of receipt."""
    closed = [v for v in versions if form(v) == "closed"]
    if closed:
        return _marked(closed[-1], len({content(v) for v in closed}) > 1)
    halves: dict[str, Version] = {}
    clash = any(len({content(v) for v in versions if form(v) == f}) > 1 for f in ("open", "end"))
    for v in versions:
        if len(halves) < 2:
            halves[form(v)] = v
    if len(halves) < 2:
        return _marked(next(iter(halves.values())), clash)
    start, end = halves["open"], halves["end"]
    joined = {k: end[k] if start[k] is None else start[k] for k in start}
    if start["attrs"] is not None and end["attrs"] is not None and start["attrs"] != end["attrs"]:
        both = {**json.loads(start["attrs"]), **json.loads(end["attrs"])}
        joined["attrs"] = json.dumps(both, sort_keys=True, separators=(",", ":"))
    joined["received_ns"] = max(start["received_ns"], end["received_ns"])
    flags = (start["flags"] | end["flags"]) & ~int(EventFlag.START_MISSING)
    joined["flags"] = flags | (int(EventFlag.END_BEFORE_START) if joined["end_ns"] < joined["start_ns"] else 0)
    return _marked(joined, clash)


def _marked(version: Version, conflict: bool) -> Version:
    flags = version["flags"] & ~_STORE_FLAGS
    return {**version, "flags": flags | (int(EventFlag.CONFLICT) if conflict else 0)}


class Oracle:
    """Everything one job was sent, in memory."""

    def __init__(self) -> None:
        self.versions: dict[tuple[int, int, bytes], list[Version]] = {}
        self._receipt: dict[int, tuple[int, int]] = {}
        self.tally: Counter[str] = Counter(accepted=0, duplicate=0, conflict=0)

    def receive(self, version: Version, tie: int = 0) -> None:
        """Takes the next event of the log; `tie` orders versions that were received in the same nanosecond."""
        seen = self.versions.setdefault((version["attempt"], version["rank"], version["span_id"]), [])
        forms = {form(v) for v in seen}
        known = any(content(v) == content(version) for v in seen)
        if known or ("closed" in forms and form(version) != "closed"):
            self.tally["duplicate"] += 1
            return
        self.tally["accepted"] += 1
        self.tally["conflict"] += form(version) in forms
        seen.append(version)
        self._receipt[id(version)] = (version["received_ns"], tie)

    def rows(self) -> list[Version]:
        """What a snapshot must show."""
        return [naive_merge(sorted(vs, key=lambda v: self._receipt[id(v)])) for vs in self.versions.values()]
