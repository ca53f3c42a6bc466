"""A simulated job on disk: one compressed NDJSON file a rank, what was done to it (truth.json) and its topology.

The same job gives the same bytes: compressed files carry no time and no name.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np

from crossrank.simulate.encode import ndjson
from crossrank.simulate.job import Simulated
from crossrank.simulate.truth import true_cost


def write_job(simulated: Simulated, folder: Path) -> list[Path]:
    """Writes `rankN.ndjson.gz` of every rank (empty if nothing of it arrived), truth.json and topology.json; returns the event files.

    Makes the folder. Raises OSError when it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rank = simulated.events.column("rank").to_numpy()  # ascending: rows are in the order of rank
    edges = np.searchsorted(rank, np.arange(simulated.config.world_size + 1)).tolist()
    paths = []
    for number in range(simulated.config.world_size):
        part = simulated.events.slice(edges[number], edges[number + 1] - edges[number])
        path = folder / f"rank{number}.ndjson.gz"
        path.write_bytes(gzip.compress(ndjson(part), compresslevel=6, mtime=0))
        paths.append(path)
    (folder / "truth.json").write_text(json.dumps(truth_with_costs(simulated), indent=1) + "\n")
    (folder / "topology.json").write_text(json.dumps(simulated.topology) + "\n")
    return paths


def truth_with_costs(simulated: Simulated) -> dict[str, object]:
    """The truth of a job with the exact cost of each fault and of all of them, ns (null where the job never ends)."""
    cost = true_cost(simulated.config, simulated.faults, simulated.seed)
    return {
        **simulated.truth,
        "cost_ns": list(cost.fault_ns),
        "total_cost_ns": cost.total_ns,
        "step_ns": cost.step_ns.tolist(),
        "healthy_step_ns": cost.healthy_step_ns.tolist(),
    }
