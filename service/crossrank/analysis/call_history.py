"""What ranks of one group called, number by number, and which single slip explains that one of them differs.

Rank r differs from the others first at number s. With `mine(q)` what r called as number q and `ref(q)` what the others did:

    skipped d    mine(s + j) = ref(s + j + d)     everything r calls comes d numbers too early
    extra d      mine(s + j + d) = ref(s + j)     … too late
    order        mine(s) = ref(s + 1), mine(s + 1) = ref(s), equal after that
    changed      mine(s + j) = ref(s + j), j > 0  only this one differs

Where the others have not got far enough (they hang), what they would have called next is taken from what followed the same calls
before: training repeats itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

SLIP_MOST = 4  # operations skipped or called too much that are looked for
COMPARED_MOST = 64
_CONTEXT = 4  # calls that must have gone before for what followed to count as a prediction
_OCCURRENCES = 16


class Call(NamedTuple):
    """What a rank called. step is None where not said; it only counts where both sides say it."""

    op: int
    size: int
    dtype: int
    step: int | None


@dataclass(frozen=True, slots=True)
class Slip:
    """The slip that fits: how many operations it is about, and how many later calls it was checked on."""

    what: Literal["skipped", "extra", "order", "changed", "unclear"]
    count: int
    checked: int


def explain(mine: Mapping[int, Call], ref: Mapping[int, Call], at: int, *, went_on: bool) -> Slip:
    """The slip at number `at`. went_on: the rank's call at `at` came to an end, so nothing stopped it there."""
    later = [q for q in sorted(mine) if at < q <= at + COMPARED_MOST]
    same = [_alike(mine[q], ref[q]) for q in later if q in ref]
    after_next = [_alike(mine[q], ref[q]) for q in later if q in ref and q > at + 1]
    if _is_swap(mine, ref, at) and all(after_next):
        return Slip("order", 2, sum(same))
    if same and all(same):
        return Slip("changed", 1, len(same))
    futures = _futures(ref, at)
    found: list[Slip] = []
    for count in range(1, SLIP_MOST + 1):
        for future in futures:
            found += _shifted("skipped", count, [(mine[q], future.get(q + count)) for q in [at, *later] if q in mine])
            found += _shifted("extra", count, [(mine[q], future.get(q - count)) for q in later if q >= at + count])
    sure = [slip for slip in found if slip.checked > (1 if went_on and not same else 0)]
    if sure:
        return max(sure, key=lambda slip: (slip.checked, -slip.count, slip.what == "skipped"))
    return Slip("unclear" if same and not any(same) else "changed", 1, sum(same))


def _shifted(what: Literal["skipped", "extra"], count: int, pairs: Sequence[tuple[Call, Call | None]]) -> list[Slip]:
    known = [(a, b) for a, b in pairs if b is not None]
    return [Slip(what, count, len(known))] if known and all(_alike(a, b) for a, b in known) else []


def _is_swap(mine: Mapping[int, Call], ref: Mapping[int, Call], at: int) -> bool:
    pairs = [(mine.get(at), ref.get(at + 1)), (mine.get(at + 1), ref.get(at))]
    return all(a is not None and b is not None and _alike(a, b) for a, b in pairs) and not _alike(mine[at], ref[at])


def _alike(a: Call, b: Call) -> bool:
    return a[:3] == b[:3] and (a.step is None or b.step is None or a.step == b.step)


def _futures(ref: Mapping[int, Call], at: int) -> list[dict[int, Call]]:
    """The others' calls from `at` on, each continued as one earlier occurrence of the last calls was; without any, as they are."""
    known = {q: call for q, call in ref.items() if q >= at}
    last = max(ref, default=at)
    context = [ref[q][:3] for q in range(last - _CONTEXT + 1, last + 1) if q in ref]
    futures: list[dict[int, Call]] = []
    for end in range(last - 1, min(ref, default=last), -1):
        before = [ref[q][:3] if q in ref else None for q in range(end - len(context) + 1, end + 1)]
        if before == context:
            ahead = {last + j: Call(*ref[end + j][:3], None) for j in range(1, COMPARED_MOST) if end + j in ref and end + j <= last}
            futures.append({**ahead, **known})
            if len(futures) == _OCCURRENCES:
                break
    return futures or [known]
