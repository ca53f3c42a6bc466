"""What each operation of a recorded LLM job waits for.

    any operation              the one before it on its lane (compute; the collectives; each of the four kinds of messages)
    compute                    its receive; the first forward one of a chunk also the chunk's parameters
    send                       its compute
    receive                    the compute just before its own, of the same direction
    first backward message     the second-to-last forward compute before the first backward compute
    reduce-scatter             with overlap: the last backward compute of its chunk
    at the end of a step       gc -> layernorm -> embedding -> reduce-scatters -> clip -> optimizer; with overlap (the job has
                               separate-grads-all-reduce) the reduce-scatters come before the layernorm's

A chunk at an end of the pipeline (`chunk` lowest or highest) receives or sends nothing there. Where messages and computes are not
equally many, nobody knows which are the extra ones, and none are joined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from crossrank.importers.whatif_job import Job, Operation

Causes = defaultdict[int, list[Operation]]  # by index of the effect


def causes_of(job: Job) -> Causes:
    """All that each operation waits for, by its index; nothing for those that wait for the step to begin only."""
    found: Causes = defaultdict(list)
    lanes: dict[tuple[int, int, str], list[Operation]] = defaultdict(list)
    for o in job.operations:
        lanes[o.rank, o.step, o.lane].append(o)
    for run in lanes.values():
        run.sort(key=lambda o: (o.start_ns, o.end_ns, o.index))
        for before, after in pairwise(run):
            found[after.index].append(before)
    for rank, step in sorted({(o.rank, o.step) for o in job.operations}):
        _messages(job, rank, step, found)
        _parameters(job, rank, step, found)
        _end_of_step(job, rank, step, found)
    return found


def _messages(job: Job, rank: int, step: int, found: Causes) -> None:
    low, high = job.chunks
    forward, backward = (job.run(rank, step, f"{d}-compute") for d in ("forward", "backward"))
    for direction, run, first, last in (("forward", forward, low, high), ("backward", backward, high, low)):
        receives, sends = (job.run(rank, step, f"{direction}-{way}") for way in ("recv", "send"))
        _pair(receives, [o for o in run if o.chunk != first], found)
        _pair([o for o in run if o.chunk != last], sends, found)
        waited = [before for before, o in zip([None, *run], run, strict=False) if o.chunk != first]
        if len(waited) == len(receives):
            for cause, effect in zip(waited, receives, strict=True):
                if cause is not None:
                    found[effect.index].append(cause)
        if direction == "backward" and run:
            ahead = [o for o in forward if o.start_ns < run[0].start_ns]
            for message in (*receives[:1], *sends[:1]):
                found[message.index] += ahead[-2:-1]


def _parameters(job: Job, rank: int, step: int, found: Causes) -> None:
    computed: set[int] = set()
    gathers = {o.args["mc"]: o for o in job.run(rank, step, "params-all-gather")}
    for o in job.run(rank, step, "forward-compute"):
        gather = gathers.get(o.args["mc"], gathers.get(-1))
        if o.args["mc"] not in computed and gather is not None:
            found[o.index].append(gather)
        computed.add(o.args["mc"])


def _end_of_step(job: Job, rank: int, step: int, found: Causes) -> None:
    overlaps = bool(job.run(rank, step, "separate-grads-all-reduce"))
    scatters = job.run(rank, step, "grads-reduce-scatter")
    if overlaps:
        last = {o.args["mc"]: o for o in job.run(rank, step, "backward-compute")}
        for o in scatters:
            found[o.index] += [last[o.args["mc"]]] if o.args["mc"] in last else []
    collect = job.run(rank, step, "gc") or job.run(rank, step, "backward-compute")[-1:]
    layernorm, embedding = (job.run(rank, step, f"{n}-grads-all-reduce") for n in ("layernorm", "embedding"))
    separate, clip = job.run(rank, step, "separate-grads-all-reduce"), job.run(rank, step, "optimizer-clip-main-grad")
    first, then = (scatters[-1:], separate) if overlaps else ([], scatters)
    chain = [part for part in (layernorm, embedding, then, clip, job.run(rank, step, "optimizer")) if part]
    if chain:
        found[chain[0][0].index] += collect[-1:] + first
    for before, after in pairwise(chain):
        found[after[0].index].append(before[-1])


def _pair(causes: Sequence[Operation], effects: Sequence[Operation], found: Causes) -> None:
    if len(causes) == len(effects):
        for cause, effect in zip(causes, effects, strict=True):
            found[effect.index].append(cause)
