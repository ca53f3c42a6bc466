"""What `crossrank_client.torch.ring` makes of a real ring of gloo that runs over, and of one as NCCL fills it. Run by a rank of train.py.

There is no NCCL without a GPU: its ring is a stand-in that gives entries as its watchdog stamps them, in the pickle that PyTorch gives.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

SIZE = 2000  # TORCH_FR_BUFFER_SIZE


class Heard:
    """A client that keeps what is recorded."""

    def __init__(self) -> None:
        self.before_batch: list[Any] = []
        self.recorder_overrun = 0
        self._found: list[tuple[str, int, bool, int]] = []

    def record(self, name: str, _kind: str, start_ns: int, end_ns: int, *, seq: int, is_async: bool = False, **_: Any) -> None:
        """As of `crossrank_client.client.Client`."""
        self._found.append((name, seq, is_async, end_ns - start_ns))

    def fresh(self) -> list[tuple[str, int, bool, int]]:
        """What was recorded since the last time."""
        found, self._found = self._found, []
        return found


def check() -> None:
    """Everything, in the only process of a gloo job."""
    _of_gloo()
    _as_of_nccl()


def _of_gloo() -> None:
    from crossrank_client.torch.ring import Ring

    heard = Heard()
    ring = Ring(heard, completions_only=False)
    assert heard.before_batch == [ring.look]
    heard.fresh()
    _reduce(SIZE + 500)
    ring.look(True)
    found = heard.fresh()
    assert [op for op, *_ in found] == ["all_reduce"] * SIZE
    numbers = [seq for _, seq, _, _ in found]
    assert numbers == list(range(numbers[0], numbers[0] + SIZE))
    assert heard.recorder_overrun == 500
    _reduce(100)
    ring.look(False)  # not due
    assert heard.fresh() == []
    ring.look(True)
    assert [seq for _, seq, _, _ in heard.fresh()] == list(range(numbers[-1] + 1, numbers[-1] + 101))
    _reduce(3)
    ring.remove()
    assert len(heard.fresh()) == 3
    assert heard.before_batch == []
    assert heard.recorder_overrun == 500


def _reduce(times: int) -> None:
    for _ in range(times):
        dist.all_reduce(torch.zeros(4))


def _as_of_nccl() -> None:
    from crossrank_client.torch.ring import Ring

    entries: list[dict[str, Any]] = []
    module = torch._C._distributed_c10d

    def recorder(with_entries: bool, _stacks: bool, _active: bool) -> bytes:
        said: dict[str, Any] = {"pg_status": {"0": {"last_enqueued_collective": len(entries)}} if entries else {}}
        return pickle.dumps({**said, "entries": entries} if with_entries else said)

    module._dump_nccl_trace = recorder
    try:
        heard = Heard()
        ring = Ring(heard, completions_only=False)
        heard.fresh()  # gloo's, which is read as long as NCCL has said nothing
        now = time.time_ns()
        entries += [_entry(0, now - 50, (now - 40, now - 10)), _entry(1, now - 30, None), _entry(2, now - 5_000_000_000, None)]
        ring.look(True)
        assert heard.fresh() == [("all_reduce", 1, False, 30), ("all_reduce", 3, True, 0)]  # the third is long in coming
        entries[1:] = [_entry(1, now - 30, (now - 20, now + 20)), _entry(2, now - 5_000_000_000, None), _entry(3, now, None)]
        ring.look(True)
        assert heard.fresh() == [("all_reduce", 2, False, 40)]
        ring.remove()  # nothing is waited for any more
        assert heard.fresh() == [("all_reduce", 4, True, 0)]
        assert heard.recorder_overrun == 0
    finally:
        del module._dump_nccl_trace


def _entry(record: int, created_ns: int, stamped: Sequence[int] | None) -> dict[str, Any]:
    started, completed = stamped or (None, None)
    return {
        "record_id": record,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": record + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": created_ns,
        "time_discovered_started_ns": started,
        "time_discovered_completed_ns": completed,
        "retired": completed is not None,
        "is_p2p": False,
    }
