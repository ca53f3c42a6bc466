"""What is known of a recorded file beside its bytes, and how its rank is found.

The rank is taken from the file itself; where the format has none, from the file's name; where that has none, the user gives it.
A rank that is given but contradicts the one in the file is refused: one of the two is wrong, and nobody can tell which.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from crossrank.errors import BadParameter
from crossrank.limits import Limits
from crossrank.model.decoded import Decoded

_MARKED: Final = re.compile(r"rank[-_.]?(\d+)", re.IGNORECASE)
_TRAILING: Final = re.compile(r"(\d+)$")
_ENDINGS: Final = re.compile(r"(\.(json|jsonl|ndjson|gz|zst|zstd|pt|trace|pkl|pickle|parquet|et|pb|txt|log))+$", re.IGNORECASE)
_RANK_MAX: Final = 2**31 - 1
_NAME, _GROUPS, _GROUP_RANKS = 1024, 10_000, 65_536


@dataclass(frozen=True, slots=True)
class Source:
    """One file. name: as the user knows it, for messages and a rank in it. rank: as given by the user.

    at_ns: stands in where a record has no time at all (a dump without entries): time of receipt, or of other files of the run.
    """

    name: str
    rank: int | None
    at_ns: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A file that was opened. rank: whose it is, None where it holds several; first_ns, last_ns: its times, None without any.

    batches: its events, once. `index` and the places of rejections count over the whole file. topology: what the file says of the
    job's shape beside them, as it would be posted; None where it says nothing.
    """

    rank: int | None
    first_ns: int | None
    last_ns: int | None
    batches: Iterator[Decoded]
    topology: Mapping[str, Any] | None = None


ReadFile = Callable[[BinaryIO, Source, Limits], Recording]
"""A format: opens one seekable file. Raises UndecodableBody, BodyTooLarge, BadParameter (while it is iterated as well)."""


def rank_in_name(name: str, *, ends_in_rank: bool) -> int | None:
    """The rank a file name states, as in `rank3.json`; None without.

    ends_in_rank: the format's own names end in the rank (`fr_trace_rank_3`, `nccl_trace_rank_node02_3`, `_dump_3`). Where they do
    not, a number at the end is a process or a time.
    """
    stem = _ENDINGS.sub("", re.split(r"[/\\]", name)[-1])
    found = _MARKED.search(stem) or (_TRAILING.search(stem) if ends_in_rank else None)
    if found is None or len(found[1]) > 10:
        return None
    rank = int(found[1])
    return rank if rank <= _RANK_MAX else None


def settle_rank(source: Source, in_file: int | None, *, ends_in_rank: bool = False) -> int:
    """The one rank of a file; ends_in_rank: see `rank_in_name`. Raises BadParameter (field `rank`) when there is none or two that differ."""
    if source.rank is not None:
        if in_file is not None and in_file != source.rank:
            raise BadParameter(f"{source.name}: rank {source.rank} was given, the file says rank {in_file}", field="rank")
        return source.rank
    if in_file is not None:
        return in_file
    named = rank_in_name(source.name, ends_in_rank=ends_in_rank)
    if named is None:
        raise BadParameter(
            f"{source.name}: neither the file nor its name says which rank recorded it; give it with --rank N or ?rank=N",
            field="rank",
        )
    return named


def stated_topology(world_size: int | None, groups: Mapping[str, tuple[Sequence[int] | None, str | None]]) -> dict[str, Any] | None:
    """The form in which a job's shape is posted. groups: members and description by name; those without members are left out.

    What is beyond a sane job is left out as well: the events are worth more than a claim about their shape.
    """
    known = [
        {"name": name, "ranks": sorted(set(ranks)), **({"desc": desc} if desc else {})}
        for name, (ranks, desc) in sorted(groups.items())
        if ranks and name and len(name) <= _NAME and len(ranks) <= _GROUP_RANKS and min(ranks) >= 0 and max(ranks) <= _RANK_MAX
    ][:_GROUPS]
    size = world_size if world_size is not None and 0 < world_size <= _RANK_MAX else None
    if size is None and not known:
        return None
    return {**({"world_size": size} if size is not None else {}), "groups": known}
