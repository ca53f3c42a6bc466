"""The flight recorder's ring: what PyTorch keeps of the last operations anyway, read once a second by the client's thread.

It costs the training nothing. What it knows depends on the backend: NCCL's watchdog stamps starts and completions, gloo stamps only the
call and leaves messages out. So with `Calls` installed it only adds the operations of devices, whose completion no host
call shows; alone, it gives an operation where completions are stamped, and a launch (`is_async`) where they are not.

Times in the ring are of the wall clock; they are brought to the rank's own clock by the pair of both that was read at the same time.
Operations are the same as those of `Calls`: group by name, seq by the group's own counter.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from crossrank_client.clock import read_offset_ns

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossrank_client.client import Client

LANE = "device:ring"
_OPS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "all_reduce_barrier": "barrier",
    "all_gather": "all_gather", "_all_gather_base": "all_gather", "allgather": "all_gather", "_allgather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather", "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "all_to_all": "all_to_all", "alltoall": "all_to_all",
    "all_to_allv": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "barrier": "barrier",
}  # fmt: skip


def dump(*, stacks: bool) -> bytes | None:
    """The ring as JSON (as a pickle where stacks are wanted, which JSON leaves out); None without a recorder or entries."""
    found = getattr(torch._C, "_distributed_c10d", None)  # noqa: SLF001 -- the recorder has no public name
    as_json, as_pickle = (getattr(found, name, None) for name in ("_dump_fr_trace_json", "_dump_fr_trace"))
    if stacks and as_pickle is not None:
        return bytes(as_pickle(True, True, False))
    return None if as_json is None else bytes(as_json(True, False))


class Ring:
    """Reads the ring after each post of the client. completions_only: calls are recorded elsewhere."""

    def __init__(self, client: Client, *, completions_only: bool) -> None:
        self._client, self._completions_only = client, completions_only
        self._dump: Callable[..., bytes | None] = dump
        self._next_record = 0
        self._waiting: dict[int, None] = {}
        self._devices = torch.cuda.is_available()
        if self._devices or not completions_only:
            client.on_answer.append(self._read)

    def remove(self) -> None:
        """Reads the ring once more and then no more."""
        if self._read in self._client.on_answer:
            self._client.on_answer.remove(self._read)
            self._read({})

    def _read(self, _answer: dict[str, Any]) -> None:
        found = self._dump(stacks=False)
        if found is None:
            return
        entries = json.loads(found).get("entries") or ()
        offset = read_offset_ns()  # wall to monotonic, now
        for entry in entries:
            record = entry.get("record_id")
            if not isinstance(record, int) or (record < self._next_record and record not in self._waiting):
                continue
            self._next_record = max(self._next_record, record + 1)
            if not self._record(entry, offset) and len(self._waiting) < len(entries):
                self._waiting[record] = None
            else:
                self._waiting.pop(record, None)

    def _record(self, entry: dict[str, Any], offset: int) -> bool:
        """Adds an entry's operation or launch. False while it may still complete."""
        op = _OPS.get(str(entry.get("profiling_name")).rpartition(":")[2])
        group = entry.get("process_group") or (None,)
        if op is None or group[0] is None or entry.get("is_p2p"):
            return True
        fields = {"op": op, "group": str(group[0]), "seq": entry.get("collective_seq_id"), "attrs": {"source": "ring"}}
        ended = entry.get("time_discovered_completed_ns")
        if ended:
            started = entry.get("time_discovered_started_ns") or entry["time_created_ns"]
            self._client.record(op, "collective", started - offset, ended - offset, lane=LANE, step=None, **fields)
            return True
        if self._completions_only:
            return False
        created = entry["time_created_ns"] - offset
        if entry.get("retired") or entry.get("state") == "scheduled":
            self._client.record(op, "collective", created, created, lane=LANE, step=None, is_async=True, **fields)
        return True
