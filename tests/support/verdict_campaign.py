"""Random jobs with one random fault each, and what their verdicts should be; for scoring analysis.standstill and .mismatches.

Hangs, skipped and mis-sized collectives are simulated with their consequences. Wrong operations, element types, orders and extra
calls are written into the events of one rank afterwards, as their consequences depend on the library. A rank whose device stops, that
waits for a message of one who waits for it, or that believes other members of its group, is made of one that hangs: all others wait alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from crossrank.analysis.mismatches import find_mismatches
from crossrank.analysis.standstill import find_standstill
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.model.progress import reported_progress
from crossrank.model.verdicts import Mismatch, Standstill
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.faults import Fault, Hang, SkippedCollective, WrongSize
from crossrank.simulate.job import simulate
from crossrank.simulate.topology import lay_out
from tests.support.pipeline import timeline_of, topology_of

Kind = Literal["none", "hang", "skipped", "size", "op", "dtype", "order", "extra", "device", "deadlock", "membership"]
KINDS: tuple[Kind, ...] = ("none", "hang", "hang", "hang", "skipped", "skipped", "size", "op", "dtype", "order", "extra")
ALL_KINDS: tuple[Kind, ...] = (*KINDS, "device", "deadlock", "membership")
_LAYOUTS = (
    (8, 1, 1), (4, 2, 1), (2, 4, 1), (2, 2, 2), (4, 4, 1), (4, 1, 4), (2, 4, 2), (4, 2, 4), (8, 4, 1), (4, 4, 4), (8, 4, 2),
    (16, 4, 2), (8, 8, 4), (32, 8, 1),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One job: the fault, who did it, in which group at which number, and what is lost on the way."""

    seed: int
    config: JobConfig
    kind: Kind
    rank: int
    group: str
    seq: int
    lost: float  # share of the closed spans
    lost_open: float  # share of the open ones
    missing: int | None  # a rank without data
    events: pa.Table


@dataclass(frozen=True, slots=True)
class Score:
    """exact: the verdict that the events allow. false: ranks named that did nothing. told: what was said."""

    case: Case
    exact: bool
    cannot_tell: bool
    false: tuple[int, ...]
    told: str


def draw(
    seed: int, *, ranks_most: int = 256, lost: float | None = None, lost_open: float = 0.0, kinds: tuple[Kind, ...] = KINDS
) -> Case:
    """A random case."""
    rng = np.random.default_rng((seed, 77))
    fitting = [layout for layout in _LAYOUTS if int(np.prod(layout)) <= ranks_most]
    dp, tp, pp = fitting[int(rng.integers(len(fitting)))]
    config = JobConfig(
        job="campaign", dp=dp, tp=tp, pp=pp, steps=6, microbatches=int(rng.integers(1, 4)), layers=int(rng.integers(1, 3)),
        buckets=int(rng.integers(2, 5)), overlap=bool(rng.random() < 0.3), ranks_per_host=int(rng.choice((2, 4, 8))),
        clocks=ClockConfig(step_fraction=0.1 if rng.random() < 0.3 else 0.0),
    )  # fmt: skip
    kind = kinds[int(rng.integers(len(kinds)))]
    rank, step = int(rng.integers(config.world_size)), int(rng.integers(3, 5))
    scope = str(rng.choice(["world", *(["dp"] if dp > 1 else []), *(["tp"] if tp > 1 else [])]))
    per_step = {"world": 1, "dp": config.buckets, "tp": 2 * config.layers * config.microbatches}[scope]
    index = int(rng.integers(per_step))
    faults: list[Fault] = []
    if kind == "hang":
        places = ["dataloader", "forward", "backward", "optimizer", "grad_norm", *(["gradients"] if dp > 1 else [])]
        faults = [Hang(rank, step, str(rng.choice(places)))]  # type: ignore[arg-type]
    elif kind in ("device", "deadlock", "membership"):
        faults = [Hang(rank, step, "grad_norm")]
    elif kind == "skipped":
        faults = [SkippedCollective(rank, step, scope, index)]  # type: ignore[arg-type]
    elif kind == "size":
        faults = [WrongSize(rank, step, scope, index)]  # type: ignore[arg-type]
    simulated = simulate(config, faults, seed=seed)
    layout = lay_out(config)
    group = next(
        name for name, m in zip(layout.groups, layout.members, strict=True) if rank in m and layout.scope_of(name) == scope
    )
    seq = step * per_step + index + 1
    if kind in ("deadlock", "membership"):
        group, seq = "world", step + 1
    events = _slip(simulated.events, kind, rank, group, seq)
    chance = float(rng.choice((0.0, 0.002, 0.01))) if lost is None else lost
    missing = int(rng.integers(config.world_size)) if rng.random() < 0.15 else None
    if (
        missing == rank
        or config.world_size < 8
        or (kind == "deadlock" and missing is not None and missing >= config.world_size - 2)
    ):
        missing = None
    case = Case(seed, config, kind, rank, group, seq, chance, lost_open, missing, events)
    return replace(case, events=_delivered(case, rng))


def _slip(events: pa.Table, kind: Kind, rank: int, group: str, seq: int) -> pa.Table:
    """Writes a wrong operation, type, order or an extra call into one rank's events of one group."""
    if kind == "device":
        return _stopped_inside(events, rank)
    if kind in ("deadlock", "membership"):
        return _waiting_otherwise(events, kind, rank, group, seq)
    if kind not in ("op", "dtype", "order", "extra"):
        return events
    mine = (events["rank"].to_numpy() == rank) & np.array([g == group for g in events["group"].to_pylist()])
    number = events["seq"].fill_null(0).to_numpy().copy()
    if kind in ("op", "dtype"):
        words = events[kind].to_pylist()
        for i in np.flatnonzero(mine & (number == seq)).tolist():
            words[i] = "all_gather" if kind == "op" else "float16"
        return _with(events, kind, words)
    if kind == "order":  # the next operation is another one, and this rank calls it first
        words, following = events["op"].to_pylist(), (number == seq + 1)
        group_rows = np.array([g == group for g in events["group"].to_pylist()])
        for i in np.flatnonzero(group_rows & following).tolist():
            words[i] = "broadcast"
        events = _with(events, "op", words)
        swapped = np.where(mine & (number == seq), seq + 1, np.where(mine & following, seq, number))
        return _with(events, "seq", [int(s) if s else None for s in swapped.tolist()])
    extra = events.filter(pa.array(mine & (number == seq)))
    if extra.num_rows == 0:
        return events
    extra = _with(_with(extra, "op", ["barrier"]), "span_id", [b"\xee" * 8])
    later = np.where(mine & (number >= seq), number + 1, number)
    return pa.concat_tables([_with(events, "seq", [int(s) if s else None for s in later.tolist()]), extra]).unify_dictionaries()


def _stopped_inside(events: pa.Table, rank: int) -> pa.Table:
    """The rank never leaves the last collective it entered, which the others have left."""
    start, end = events["start_ns"].to_numpy(), events["end_ns"].fill_null(np.iinfo(np.int64).max).to_numpy()
    mine, is_open = events["rank"].to_numpy() == rank, np.asarray(events["end_ns"].is_null())
    entered = np.flatnonzero(mine & (np.array(events["kind"].to_pylist()) == "collective"))
    last = int(entered[np.argmax(start[entered])])
    ends = events["end_ns"].to_pylist()
    ends[last] = None
    after = mine & ~is_open & (end > start[last])
    after[last] = False
    return _with(events, "end_ns", ends).filter(pa.array(~after))


def _waiting_otherwise(events: pa.Table, kind: Kind, rank: int, group: str, seq: int) -> pa.Table:
    """The rank that did not enter the operation waits for another member's message, or enters it as one of other members."""
    there = (events["seq"].fill_null(0).to_numpy() == seq) & np.array([g == group for g in events["group"].to_pylist()])
    entered = events.filter(pa.array(there)).sort_by("rank")
    entered = entered.slice(len(entered) - 1)
    other = entered["rank"].to_pylist()[0]
    begun = events.filter(pa.array(events["rank"].to_numpy() == rank)).slice(0, 1)  # whose clock stamps it
    wrong = [r for r in sorted(set(events["rank"].to_pylist())) if r != other]
    now = {
        "rank": rank,
        "span_id": b"\xee" * 8,
        "start_ns": int(np.max(events["start_ns"].filter(pa.array(events["rank"].to_numpy() == rank)).to_numpy())),
    }
    now |= {name: begun[name].to_pylist()[0] for name in ("host", "clock", "lane")}
    if kind == "deadlock":
        now |= {"kind": "recv", "name": "recv", "op": "recv", "peer": other, "group": "pp", "seq": 1, "group_ranks": None}
    else:
        now |= {"group_ranks": wrong}
    for name, value in now.items():
        entered = _with(entered, name, [value])
    return pa.concat_tables([events, entered]).unify_dictionaries()


def _with(events: pa.Table, name: str, values: list[Any]) -> pa.Table:
    field = EVENT_SCHEMA.field(name)
    array = (
        pa.array(values, field.type.value_type).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(values, field.type)
    )
    return events.set_column(events.schema.get_field_index(name), field, array.cast(field.type))


def _delivered(case: Case, rng: np.random.Generator) -> pa.Table:
    """Loses events and a rank, and mixes the order of what is left."""
    events = case.events
    is_open = np.asarray(events["end_ns"].is_null())
    keep = rng.random(events.num_rows) >= np.where(is_open, case.lost_open, case.lost)
    number, groups = events["seq"].fill_null(0).to_numpy(), np.array([g == case.group for g in events["group"].to_pylist()])
    witness = groups & (np.abs(number - case.seq) <= 1) & (events["rank"].to_numpy() == case.rank)
    if case.kind in ("size", "op", "dtype", "order", "extra"):
        keep |= witness  # what nobody has seen nobody can tell
    if case.missing is not None:
        keep &= events["rank"].to_numpy() != case.missing
    kept = np.flatnonzero(keep)
    return events.take(pa.array(rng.permutation(kept)))


def verdicts(events: pa.Table) -> tuple[tuple[Mismatch, ...], Standstill]:
    """Mismatches (with those that only the standstill shows) and the standstill of a job."""
    timeline = timeline_of(events)
    topology = topology_of(timeline)
    found = find_mismatches(timeline)
    standstill = find_standstill(timeline, topology, reported_progress(events, timeline.trace), found)
    return (*found, *standstill.skipped), standstill


def score(case: Case) -> Score:
    """Compares a case's verdicts with what was done."""
    found, still = verdicts(case.events)
    named = {c.rank for c in still.culprits} | {r for m in found for r in m.odd_ranks}
    injected = set() if case.kind == "none" else {case.rank}
    classes = {m.class_ for m in found}
    tied = bool(found) and all(not m.odd_ranks and case.rank in m.candidates for m in found)
    told = f"{[(m.class_, m.group, m.seq, m.odd_ranks, m.candidates) for m in found]} {[(c.rank, c.reason) for c in still.culprits]} {still.suspects} {still.unseen} {still.cycle}"
    match case.kind:
        case "none":
            exact = not found and not named and not still.suspects
        case "hang":
            exact = named == injected and not found
        case "device":
            exact = named == injected and not found and {c.reason for c in still.culprits} == {"device_stopped"}
        case "deadlock":
            exact = case.rank in still.cycle and len(still.cycle) == 2 and named == set(still.cycle) and not found
            injected = injected | set(still.cycle) if exact else injected
        case "skipped":
            hidden = _is_hidden(case)
            exact = (
                (not named and not found)
                if hidden
                else (named == injected and classes == {"skipped"}) or (tied and len(found) == 1)
            )
        case _ if _alone(case):
            exact = not found and not named
        case _:  # of two, one called too much where the other left one out: the same to anybody else
            right = classes == {case.kind} or (tied and case.kind == "extra" and classes == {"skipped"})
            exact = right and len(found) == 1 and (named == injected or tied)
    return Score(case, exact, not named, tuple(sorted(named - injected)), told)


def _alone(case: Case) -> bool:
    """Nobody else of the group has data: there is nothing to compare with."""
    there = np.array([g == case.group for g in case.events["group"].to_pylist()])
    return len(set(case.events["rank"].to_numpy()[there].tolist())) < 2


def _is_hidden(case: Case) -> bool:
    """A skipped operation whose place the rank's next one took, the same in every respect: no event shows it."""
    events = case.events
    there = np.array([g == case.group for g in events["group"].to_pylist()]) & (events["seq"].fill_null(0).to_numpy() == case.seq)
    rows = events.filter(pa.array(there)).select(["rank", "op", "bytes", "dtype", "step"]).to_pylist()
    calls = {row.pop("rank"): row for row in rows}
    mine = calls.pop(case.rank, None)
    return mine is not None and all(mine == other for other in calls.values())
