"""Process groups: their names, members and sequence numbers, the same on every member.

PyTorch names a group by a number that all ranks count alike, or by a hash of its members. The number of an operation is counted
here, from where the group's own counter stood when it was first seen: every operation of the process passes, so the count stays
that of the group, also where a backend counts its own start-up. Messages are counted for each pair and direction.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossrank_client.client import Client

GROUPS_KEPT = 4096


class Group:
    """One process group as this process sees it. ranks: global ranks of its members by their rank in the group."""

    __slots__ = ("_messages", "_next", "identity", "name", "ranks")

    def __init__(self, group: ProcessGroup, before: int) -> None:
        self.identity = id(group)
        self.name = str(group.group_name)
        self.ranks: list[int] = list(dist.get_process_group_ranks(group))
        self._next = itertools.count(before + 1)
        self._messages: dict[tuple[str, int], Iterator[int]] = {}

    def next_seq(self) -> int:
        """The number of the collective that is called now."""
        return next(self._next)

    def next_message(self, kind: str, peer: int) -> int:
        """The number of the send to, or the receive from, a global rank."""
        counter = self._messages.get((kind, peer))
        if counter is None:
            counter = self._messages.setdefault((kind, peer), itertools.count(1))
        return next(counter)


class Groups:
    """The groups seen so far; each is posted as topology when it is first seen."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Group] = {}

    def of(self, boxed: Any) -> Group:
        """The group of an operator's argument."""
        group = ProcessGroup.unbox(boxed)
        name = group.group_name
        known = self._known.get(name)
        if known is not None and known.identity == id(group):
            return known
        return self._met(group, name)

    def _met(self, group: ProcessGroup, name: str) -> Group:
        try:
            before = int(group._get_sequence_number_for_group())  # noqa: SLF001 -- no public name
        except (AttributeError, RuntimeError):
            before = 0
        found = Group(group, before)
        if len(self._known) < GROUPS_KEPT or name in self._known:
            self._known[name] = found
        self._client.group(found.name, found.ranks, getattr(group, "group_desc", None) or None)
        return found


def post_mesh(client: Client, mesh: Any) -> None:
    """Posts where this rank stands in a DeviceMesh. Dimensions without names are `dim0`, `dim1` and so on."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return
    names = mesh.mesh_dim_names or tuple(f"dim{at}" for at in range(len(coordinate)))
    client.coordinates(**{str(name): int(place) for name, place in zip(names, coordinate)})


def meshes_of(model: Any) -> list[Any]:
    """The distinct DeviceMeshes that parameters of a module are laid out on (DTensor: FSDP2, tensor parallel)."""
    found: dict[int, Any] = {}
    for parameter in model.parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None:
            found.setdefault(id(mesh), mesh)
    return list(found.values())
