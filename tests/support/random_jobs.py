"""Random small jobs for property tests: ranks that compute, meet in collectives, send and receive, and lose events."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.events import collective, message

_ROOTED = ("broadcast", "reduce")


def random_rows(
    seed: int, *, ranks: int = 4, operations: int = 12, loss: float = 0.1, garbage_clocks: bool = False
) -> list[dict[str, Any]]:
    """Rows of a run that really could have happened (before its clocks were made wrong), with nested and overlapping spans."""
    rng = np.random.default_rng(seed)
    now = rng.integers(0, 50, ranks)
    rows: list[dict[str, Any]] = []
    seqs: dict[Any, int] = {}
    for _ in range(operations):
        what = rng.integers(0, 4)
        if what == 0:
            r = int(rng.integers(ranks))
            length = int(rng.integers(0, 30))
            rows.append({"rank": r, "at": (int(now[r]), int(now[r] + length))})
            now[r] += length + int(rng.integers(0, 3))
        elif what == 1 and ranks > 1:
            a, b = (int(x) for x in rng.choice(ranks, 2, replace=False))
            seq = seqs[a, b] = seqs.get((a, b), 0) + 1
            end = int(max(now[b], now[a]) + rng.integers(0, 9))
            rows += [
                message("send", a, b, seq, (int(now[a]), int(now[a] + rng.integers(0, 40)))),
                message("recv", b, a, seq, (int(now[b]), end)),
            ]
            now[a] += int(rng.integers(0, 5))
            now[b] = end
        else:
            members = sorted(int(x) for x in rng.choice(ranks, rng.integers(1, ranks + 1), replace=False))
            group = "g" + "_".join(map(str, members))
            seq = seqs[group] = seqs.get(group, 0) + 1
            op = str(rng.choice(["all_reduce", "barrier", *_ROOTED]))
            root = members[int(rng.integers(len(members)))]
            last = int(max(now[members]))
            for r in members:
                end = last + int(rng.integers(0, 9))
                more = {"op": op, "peer": root} if op in _ROOTED else {"op": op}
                rows.append(collective(r, seq, (int(now[r]), end), group, **more))
                now[r] = now[r] + 1 if what == 3 else end  # what == 3: asynchronous, the lane goes on while it runs
    rows = [row for row in rows if rng.random() >= loss]
    offset = rng.integers(-200, 200, ranks) if garbage_clocks else np.zeros(ranks, dtype=np.int64)
    for row in rows:
        start, end = row["at"]
        shift = int(offset[row["rank"]])
        row["at"] = (start + shift, None if rng.random() < 0.03 else end + shift)
    return rows
