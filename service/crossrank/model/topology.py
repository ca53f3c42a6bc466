"""The shape of a job: how many ranks, on which hosts, in which groups, and who may be compared with whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from crossrank.model.arrays import Int32Array

GroupKind = Literal["world", "dp", "tp", "pp", "ep", "cp", "other"]
MISSING_LISTED = 65_536  # missing ranks named one by one at most


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. Members are those sent or posted, else the ranks seen in its communications. scope: None: not known."""

    name: str
    ranks: tuple[int, ...]
    kind: GroupKind
    scope: Literal["intra_host", "inter_host"] | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """What is known of a job's shape, posted or inferred.

    stage: of each rank in `seen`: ranks of one stage do the same work and are compared with one another; stages of a pipeline
    are not. missing: ranks of the world without any usable span (the first MISSING_LISTED), `missing_count` says how many.
    coords: of each rank along each dimension (dp, tp, pp, ep, cp), posted or inferred. sizes: ranks along each dimension.
    """

    world_size: int
    seen: tuple[int, ...]
    missing: tuple[int, ...]
    missing_count: int
    hosts: dict[int, str]
    groups: tuple[Group, ...]
    stage: tuple[int, ...]
    conflicts: tuple[str, ...] = field(default=())
    coords: dict[int, dict[str, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def stage_of(self, rank: np.ndarray) -> Int32Array:
        """Stages of ranks; every rank must be in `seen`."""
        place = np.searchsorted(np.array(self.seen, dtype=np.int64), rank)
        stages: Int32Array = np.array(self.stage, dtype=np.int32)[place]
        return stages
