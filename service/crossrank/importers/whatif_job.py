"""A recorded LLM job: its operations, and which worker is where (see importers.whatif)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from crossrank.importers.rows import span_id

COMPUTE: Final = frozenset({"forward-compute", "backward-compute", "optimizer", "gc"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One row, in whole nanoseconds from ORIGIN_NS."""

    index: int
    dp: int
    stage: int
    rank: int
    step: int
    optype: str
    begin_ns: int  # of its step
    start_ns: int
    end_ns: int
    seq: int
    chunk: int  # position of the model chunk in the model; -1 where the row has none
    args: Mapping[str, int]

    @property
    def id(self) -> bytes:
        """Span id of its event."""
        return span_id("whatif", self.rank, self.step, self.optype, self.seq, self.index)

    @property
    def lane(self) -> str:
        """Operations of one lane run one after the other."""
        return "compute" if self.optype in COMPUTE else self.optype if self.optype.endswith(("send", "recv")) else "dp"


class Job:
    """All operations and the shape of the job: which worker is where."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.rank_at = {(o.dp, o.stage): o.rank for o in operations}
        self.stages = sorted({o.stage for o in operations})
        self.chunks = (min((o.chunk for o in operations if o.chunk >= 0), default=-1), max(o.chunk for o in operations))
        self.kinds: dict[tuple[int, int, str], list[Operation]] = defaultdict(list)  # (rank, step, optype), in order of start
        for o in operations:
            self.kinds[o.rank, o.step, o.optype].append(o)
        for run in self.kinds.values():
            run.sort(key=lambda o: (o.start_ns, o.seq))
        self.place = {o.index: place for run in self.kinds.values() for place, o in enumerate(run)}
        self._groups: dict[tuple[int, int, str], tuple[str, list[int]]] = {}

    def run(self, rank: int, step: int, optype: str) -> list[Operation]:
        """All operations of one type of a worker in a step, in order of start."""
        return self.kinds.get((rank, step, optype), [])

    def neighbour(self, o: Operation) -> int | None:
        """The other rank of a message; None at an end of a pipeline that does not go round."""
        forward, sends = o.optype.startswith("forward"), o.optype.endswith("send")
        place = self.stages.index(o.stage) + (1 if forward == sends else -1)
        virtual = self.chunks[1] + 1 > len(self.stages)
        if not virtual and not 0 <= place < len(self.stages):
            return None
        return self.rank_at.get((o.dp, self.stages[place % len(self.stages)]))

    def group(self, o: Operation, over: str) -> tuple[str, list[int]]:
        """Name and ranks of the group of a collective."""
        key = (o.dp, o.stage, over)
        if key not in self._groups:
            self._groups[key] = self._members(o, over)
        return self._groups[key]

    def _members(self, o: Operation, over: str) -> tuple[str, list[int]]:
        dps = sorted({dp for dp, stage in self.rank_at if stage == o.stage})
        if over in ("dp", "dp-separate"):
            return f"{over}-stage{o.stage}", [self.rank_at[dp, o.stage] for dp in dps]
        if over == "all":
            return "all", sorted(set(self.rank_at.values()))
        if over == "embedding":
            ends = {self.stages[0], self.stages[-1]}
            return f"embedding-dp{o.dp}", sorted({r for (dp, stage), r in self.rank_at.items() if dp == o.dp and stage in ends})
        return f"worker-{o.rank}", [o.rank]
