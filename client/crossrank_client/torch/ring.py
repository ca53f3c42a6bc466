"""The flight recorder's ring: what PyTorch keeps of the last operations anyway, read by the client's thread.

It costs the training's calls nothing. What it knows depends on the backend: NCCL's watchdog stamps starts and completions, gloo stamps only the
call and leaves messages out. So with `Calls` installed it only adds the operations of devices, whose completion no host
call shows; alone, it gives an operation where completions are stamped, and a launch (`is_async`) where they are not.

A look copies the whole ring and holds the interpreter's lock meanwhile, so there are few: see `crossrank_client.turnover`. The pickle takes
less than half of the time that JSON takes, as it says each name once. How many operations were called is told without the entries, in
microseconds. Everything is read at once when the client is flushed (as at SIGTERM), when something stands still, and at the end.

Times in the ring are of the wall clock; they are brought to the rank's own clock by the pair of both that was read at the same time.
Operations are the same as those of `Calls`: group by name, seq by the group's own counter.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import threading
from typing import TYPE_CHECKING, Any

import torch

from crossrank_client.clock import mono_ns, read_offset_ns
from crossrank_client.turnover import Turnover

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossrank_client.client import Client

    Recorder = Callable[[bool, bool, bool], bytes]  # with entries, with stacks, only those that are not over

LANE = "device:ring"
PATIENCE_NS = 1_000_000_000
READ_BYTES = 1 << 18
_OPS = {
    "all_reduce": "all_reduce", "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce", "all_reduce_barrier": "barrier",
    "all_gather": "all_gather", "_all_gather_base": "all_gather", "allgather": "all_gather", "_allgather_base": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather", "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "all_to_all": "all_to_all", "alltoall": "all_to_all",
    "all_to_allv": "all_to_all", "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
    "barrier": "barrier",
}  # fmt: skip


class _Plain(pickle.Unpickler):
    """Reads dicts, lists, texts and numbers only, so that a pickle runs nothing."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuses."""
        raise pickle.UnpicklingError(f"{module}.{name} in a flight recorder's dump")


def dump(*, stacks: bool) -> bytes | None:
    """The ring as a pickle; None without a recorder."""
    recorder = _recorder()
    return None if recorder is None else bytes(recorder(True, stacks, False))


def _recorder() -> Recorder | None:
    """NCCL's own recorder where a group of NCCL has used it, else that of all other backends."""
    found = getattr(torch._C, "_distributed_c10d", None)  # noqa: SLF001 -- the recorders have no public names
    nccl: Recorder | None = getattr(found, "_dump_nccl_trace", None)
    others: Recorder | None = getattr(found, "_dump_fr_trace", None)
    return nccl if nccl is not None and (others is None or _said(nccl, entries=False).get("pg_status")) else others


def _said(recorder: Recorder, *, entries: bool) -> dict[str, Any]:
    said = io.BytesIO(recorder(entries, False, False))
    # Buffered: of a file that cannot peek it would ask for each of 100,000 words by itself, which takes three times as long.
    found: dict[str, Any] = _Plain(io.BufferedReader(said, READ_BYTES)).load()
    return found


def _called(recorder: Recorder) -> int:
    """Operations called so far, all groups together."""
    groups = _said(recorder, entries=False).get("pg_status") or {}
    return sum(max(0, int(group.get("last_enqueued_collective", 0))) for group in groups.values())


class Ring:
    """Reads the ring before batches of the client where it is time. completions_only: calls are recorded elsewhere."""

    def __init__(self, client: Client, *, completions_only: bool) -> None:
        self._client, self._completions_only = client, completions_only
        self._recorder: Recorder | None = None
        self._turnover = Turnover()
        self._stamps = False  # completions, as seen so far
        self._reading = threading.Lock()  # the client's thread and who ends the client
        if torch.cuda.is_available() or not completions_only:
            client.before_batch.append(self.look)
            with contextlib.suppress(Exception):  # of a recorder we cannot read: the thread meets it again and counts it as a fault
                self.look(False)  # what goes unseen from now on is known to be lost

    def remove(self) -> None:
        """Reads the ring once more and then no more."""
        if self.look in self._client.before_batch:
            self._client.before_batch.remove(self.look)
            self._look(urgent=True, patience_ns=0)

    def look(self, urgent: bool) -> None:
        """Reads what is new in the ring if it is time, or urgent."""
        self._look(urgent=urgent, patience_ns=PATIENCE_NS if urgent else None)

    def _look(self, *, urgent: bool, patience_ns: int | None) -> None:
        """patience_ns: operations that last longer are told as launches; None: none is."""
        with self._reading:
            recorder = _recorder()
            if recorder is None:
                return
            if recorder != self._recorder:
                self._turnover = Turnover(late=self._recorder is None)
                self._recorder, self._stamps = recorder, False
            called, now = _called(recorder), mono_ns()
            if not urgent and not self._turnover.is_due(now, called):
                return
            known = self._turnover.lost
            entries = self._turnover.unread(_said(recorder, entries=True).get("entries") or (), now, called)
            self._client.recorder_overrun += self._turnover.lost - known
            offset = read_offset_ns()  # wall to monotonic, now
            before = 0 if patience_ns is None else now - patience_ns
            for entry in entries:
                if not self._record(entry, offset, before):
                    self._turnover.put_off(entry)

    def _record(self, entry: dict[str, Any], offset: int, before: int) -> bool:
        """Adds an entry's operation, or its launch if none can be told or it was called before `before`. False while it may still complete."""
        op = _OPS.get(str(entry.get("profiling_name")).rpartition(":")[2])
        group = entry.get("process_group") or (None,)
        if op is None or group[0] is None or entry.get("is_p2p"):
            return True
        fields = {"op": op, "group": str(group[0]), "seq": entry.get("collective_seq_id"), "attrs": {"source": "ring"}}
        ended = entry.get("time_discovered_completed_ns")
        if ended:
            self._stamps = True
            started = entry.get("time_discovered_started_ns") or entry["time_created_ns"]
            self._client.record(op, "collective", started - offset, ended - offset, lane=LANE, step=None, **fields)
            return True
        created = entry["time_created_ns"] - offset
        if not entry.get("retired") and (self._completions_only or (self._stamps and created > before)):
            return False
        if not self._completions_only:
            self._client.record(op, "collective", created, created, lane=LANE, step=None, is_async=True, **fields)
        return True
