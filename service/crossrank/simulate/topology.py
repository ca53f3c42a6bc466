"""Where each simulated rank stands: its coordinates, its host, its process groups and their members.

Arrays over ranks have the shape [pp, dp, tp]; in C order their flat index is the rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from crossrank.errors import BadParameter
from crossrank.model.arrays import Int32Array
from crossrank.simulate.config import JobConfig

SCOPES: Final = ("tp", "dp", "pp", "world")
_AXIS: Final = {"tp": 2, "dp": 1, "pp": 0}


@dataclass(frozen=True, slots=True)
class Layout:
    """Groups of a job. `group_of[scope, rank]` is an index into `groups` and `members`."""

    config: JobConfig
    groups: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    group_of: Int32Array  # [scopes, ranks]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of an array over ranks."""
        return (self.config.pp, self.config.dp, self.config.tp)

    def place(self, rank: int) -> tuple[int, int, int]:
        """Coordinates (pp, dp, tp) of a rank."""
        stage, rest = divmod(rank, self.config.dp * self.config.tp)
        return (stage, *divmod(rest, self.config.tp))

    def host(self, rank: int) -> str:
        """Name of a rank's machine."""
        return host_names(self.config)[rank // self.config.ranks_per_host]

    def scope_of(self, group: str) -> str:
        """Scope of a group by name. Raises BadParameter if there is no such group."""
        if group not in self.groups:
            raise BadParameter(f"there is no group {group!r}; the groups are {', '.join(self.groups[:8])} ...", field="group")
        return group.rstrip("0123456789")


def lay_out(config: JobConfig) -> Layout:
    """Numbers all groups of a job: tp0.., dp0.., pp0.., world."""
    ranks = np.arange(config.world_size, dtype=np.int32).reshape(config.pp, config.dp, config.tp)
    names: list[str] = []
    members: list[tuple[int, ...]] = []
    group_of = np.zeros((len(SCOPES), config.world_size), dtype=np.int32)
    for code, scope in enumerate(SCOPES):
        rows = (
            ranks.reshape(1, -1)
            if scope == "world"
            else np.moveaxis(ranks, _AXIS[scope], -1).reshape(-1, ranks.shape[_AXIS[scope]])
        )
        for number, row in enumerate(rows):
            group_of[code, row] = len(names)
            names.append(scope if scope == "world" else f"{scope}{number}")
            members.append(tuple(row.tolist()))
    return Layout(config, tuple(names), tuple(members), group_of)


def host_names(config: JobConfig) -> tuple[str, ...]:
    """Names of the hosts, equally long so that they sort by number."""
    width = len(str(config.hosts - 1))
    return tuple(f"host{number:0{width}d}" for number in range(config.hosts))


def topology(layout: Layout) -> dict[str, object]:
    """The job's topology as one posts it: world size, ranks with host, clock and coordinates, groups with members."""
    config = layout.config
    ranks = []
    for rank in range(config.world_size):
        stage, replica, shard = layout.place(rank)
        host = layout.host(rank)
        ranks.append({"rank": rank, "host": host, "clock": host, "coords": {"dp": replica, "tp": shard, "pp": stage}})
    used = [(name, m) for name, m in zip(layout.groups, layout.members, strict=True) if len(m) > 1]
    described = {"tp": "tensor parallel", "dp": "data parallel", "pp": "pipeline", "world": "all ranks"}
    groups = [{"name": name, "ranks": list(m), "desc": described[layout.scope_of(name)]} for name, m in used]
    return {"world_size": config.world_size, "ranks": ranks, "groups": groups}
