"""The program every rank of a pipeline stage runs in each step, laid out once as slots and instructions.

A *slot* is one span of the program (say "the second all-reduce in the backward of microbatch 3 on stage 1"): everything about it
but its times is fixed. An *instruction* moves time forward for all ranks of a stage at once. The instructions of all stages are
listed in one order in which every message is sent before it is received, so that one pass computes a step.

Pipeline schedule 1F1B: stage p of P starts with min(P - 1 - p, M) forwards, then alternates one forward and one backward, then
drains the remaining backwards (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021).

Each instruction owns one *draw*: a fixed place in the step's noise. Faults do not change the program, hence not the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from crossrank.simulate.config import JobConfig

NO_MICROBATCH = -1
MAIN, COMM = "main", "comm"


@dataclass(frozen=True, slots=True)
class Communication:
    """What a communication slot moves. `ordinal` of `per_step`: its number among the operations of its scope in a step."""

    op: str
    scope: str  # tp, dp, pp, world
    ordinal: int
    per_step: int
    size_bytes: int
    dtype: str
    towards: int = 0  # stage of the peer minus own stage


@dataclass(frozen=True, slots=True)
class Slot:
    """One span of a stage's program. `parent` is a slot number over all stages."""

    stage: int
    name: str
    kind: str
    parent: int | None = None
    lane: str = MAIN
    communication: Communication | None = None
    microbatch: int = NO_MICROBATCH
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """A span that holds others starts."""

    stage: int
    slot: int
    draw: int


@dataclass(frozen=True, slots=True)
class End:
    """A span that holds others ends."""

    stage: int
    slot: int


@dataclass(frozen=True, slots=True)
class Work:
    """Time passes in a phase. `first`: the first piece of its span, where added time goes."""

    stage: int
    draw: int
    phase: str
    microbatch: int
    first: bool
    base_ns: float


@dataclass(frozen=True, slots=True)
class Collective:
    """A blocking collective of all groups of a scope; for the world scope of all stages at once (`slots`, `draws` per stage)."""

    slots: tuple[int, ...]
    draws: tuple[int, ...]
    scope: str
    ordinal: int
    stage: int | None  # None: all stages
    in_background: bool = False  # on the comm lane


@dataclass(frozen=True, slots=True)
class Join:
    """The main lane waits until the comm lane is done."""

    stage: int
    slot: int
    draw: int


@dataclass(frozen=True, slots=True)
class Send:
    """A buffered send to a neighbouring stage: returns at once."""

    stage: int
    slot: int
    draw: int


@dataclass(frozen=True, slots=True)
class Receive:
    """A blocking receive of what `sent` (a slot of the neighbouring stage) carries."""

    stage: int
    slot: int
    draw: int
    sent: int


Instruction = Begin | End | Work | Collective | Join | Send | Receive


@dataclass(frozen=True, slots=True)
class Program:
    """All slots and instructions of one step. Slots of one stage stand in the order they start."""

    slots: tuple[Slot, ...]
    instructions: tuple[Instruction, ...]
    draws: int


def pipeline_order(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """The (phase, microbatch) pairs one stage runs, in 1F1B order."""
    warm = min(stages - 1 - stage, microbatches)
    order = [("forward", m) for m in range(warm)]
    for m in range(microbatches - warm):
        order += [("forward", warm + m), ("backward", m)]
    return order + [("backward", m) for m in range(microbatches - warm, microbatches)]


def build_program(config: JobConfig) -> Program:
    """Lays out one step of a job."""
    builder = _Builder(config)
    builder.step()
    return Program(tuple(builder.slots), tuple(builder.instructions), builder.draws)


class _Builder:
    """Collects slots and instructions while one step is laid out."""

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.slots: list[Slot] = []
        self.instructions: list[Instruction] = []
        self.draws = 0
        self._steps: list[int] = []  # slot of the step span of each stage
        self._sent: dict[tuple[int, str, int], int] = {}  # (stage, phase, microbatch) -> slot of the send
        self._ordinal: dict[tuple[int, str], int] = {}  # (stage, scope) -> collectives so far

    def step(self) -> None:
        """Everything, in dependency order."""
        config = self.config
        self._steps = [self._slot(Slot(stage, "step", "step")) for stage in range(config.pp)]
        for stage in range(config.pp):
            self.instructions.append(Begin(stage, self._steps[stage], self._draw()))
            self._work_span(stage, "dataloader", "data", config.loader_ns)
        self._pipeline()
        for stage in range(config.pp):
            if config.overlap:
                self._join(stage)
            else:
                self._gradients(stage, range(config.buckets))
        self._grad_norm()
        for stage in range(config.pp):
            self._work_span(stage, "optimizer", "compute", config.optimizer_ns)
            self.instructions.append(End(stage, self._steps[stage]))

    def _slot(self, slot: Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def _draw(self) -> int:
        self.draws += 1
        return self.draws - 1

    def _work_span(self, stage: int, name: str, kind: str, base_ns: float) -> None:
        slot = self._slot(Slot(stage, name, kind, self._steps[stage], phase=name))
        begin, draw = self._draw(), self._draw()
        self.instructions += [
            Begin(stage, slot, begin),
            Work(stage, draw, name, NO_MICROBATCH, first=True, base_ns=base_ns),
            End(stage, slot),
        ]

    def _pipeline(self) -> None:
        """Forwards and backwards of all stages, each listed once what it receives has been sent."""
        stages = self.config.pp
        waiting = [pipeline_order(stage, stages, self.config.microbatches) for stage in range(stages)]
        done: set[tuple[int, str, int]] = set()
        while any(waiting):
            for stage, queue in enumerate(waiting):
                while queue:
                    phase, microbatch = queue[0]
                    source = stage - 1 if phase == "forward" else stage + 1
                    if 0 <= source < stages and (source, phase, microbatch) not in done:
                        break
                    self._microbatch(stage, phase, microbatch)
                    done.add((stage, phase, microbatch))
                    queue.pop(0)

    def _microbatch(self, stage: int, phase: str, microbatch: int) -> None:
        """Receive, compute with tensor-parallel all-reduces inside, send."""
        config = self.config
        towards = 1 if phase == "forward" else -1
        if 0 <= stage - towards < config.pp:
            sent = self._sent[stage - towards, phase, microbatch]
            self.instructions.append(Receive(stage, self._message(stage, "recv", -towards, microbatch, phase), self._draw(), sent))
        span = self._slot(Slot(stage, phase, "compute", self._steps[stage], microbatch=microbatch, phase=phase))
        self.instructions.append(Begin(stage, span, self._draw()))
        piece_ns = (config.forward_ns if phase == "forward" else config.backward_ns) / config.layers
        is_last = phase == "backward" and microbatch == config.microbatches - 1
        for layer in range(config.layers):
            self.instructions.append(Work(stage, self._draw(), phase, microbatch, first=layer == 0, base_ns=piece_ns))
            self._tensor_reduce(stage, span, phase, microbatch)
            if is_last and config.overlap:
                ready = [(layer + i) * config.buckets // config.layers for i in range(2)]
                self._gradients(stage, range(*ready))
        self.instructions.append(End(stage, span))
        if 0 <= stage + towards < config.pp:
            slot = self._message(stage, "send", towards, microbatch, phase)
            self._sent[stage, phase, microbatch] = slot
            self.instructions.append(Send(stage, slot, self._draw()))

    def _message(self, stage: int, name: str, towards: int, microbatch: int, phase: str) -> int:
        config = self.config
        communication = Communication(name, "pp", microbatch, config.microbatches, config.activation_bytes, "bfloat16", towards)
        return self._slot(Slot(stage, name, name, self._steps[stage], MAIN, communication, microbatch, phase))

    def _tensor_reduce(self, stage: int, span: int, phase: str, microbatch: int) -> None:
        config = self.config
        if config.tp > 1:
            per_step = 2 * config.layers * config.microbatches
            communication = Communication(
                "all_reduce", "tp", self._next(stage, "tp"), per_step, config.activation_bytes, "bfloat16"
            )
            self._collective(stage, Slot(stage, "all_reduce", "collective", span, MAIN, communication, microbatch, phase))

    def _gradients(self, stage: int, buckets: range) -> None:
        """Some buckets' all-reduces over the data-parallel groups; the last bucket is half full."""
        config = self.config
        if config.dp == 1:
            return
        for bucket in buckets:
            size = config.gradient_bytes // (2 if bucket == config.buckets - 1 else 1)
            communication = Communication("all_reduce", "dp", self._next(stage, "dp"), config.buckets, size, "float32")
            lane = COMM if config.overlap else MAIN
            self._collective(
                stage, Slot(stage, "all_reduce", "collective", self._steps[stage], lane, communication, phase="gradients")
            )

    def _next(self, stage: int, scope: str) -> int:
        number = self._ordinal.get((stage, scope), 0)
        self._ordinal[stage, scope] = number + 1
        return number

    def _collective(self, stage: int, slot: Slot) -> None:
        assert slot.communication is not None
        scope, ordinal = slot.communication.scope, slot.communication.ordinal
        self.instructions.append(Collective((self._slot(slot),), (self._draw(),), scope, ordinal, stage, slot.lane == COMM))

    def _join(self, stage: int) -> None:
        if self.config.dp > 1:
            slot = self._slot(Slot(stage, "wait_gradients", "sync", self._steps[stage], phase="gradients"))
            self.instructions.append(Join(stage, slot, self._draw()))

    def _grad_norm(self) -> None:
        """One small all-reduce over all ranks."""
        if self.config.world_size == 1:
            return
        communication = Communication("all_reduce", "world", 0, 1, 4, "float32")
        slots = tuple(
            self._slot(Slot(stage, "all_reduce", "collective", step, MAIN, communication, phase="grad_norm"))
            for stage, step in enumerate(self._steps)
        )
        self.instructions.append(Collective(slots, tuple(self._draw() for _ in slots), "world", 0, None))
