"""Instrument a PyTorch job: phases, every communication, process groups, profiles on demand, and the last words before SIGTERM.

    import crossrank_client, crossrank_client.torch

    crossrank_client.init("http://collector:4318", "llama-70b")
    crossrank_client.torch.instrument(model=model, optimizer=optimizer, dataloader=loader)

Call it after `init_process_group`. Nothing of the training changes, and `uninstrument()` takes every hook away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import crossrank_client
from crossrank_client.torch.calls import Calls
from crossrank_client.torch.groups import meshes_of, post_mesh
from crossrank_client.torch.last_words import LastWords
from crossrank_client.torch.phases import Phases, Steps
from crossrank_client.torch.profiles import Profiles
from crossrank_client.torch.ring import Ring

if TYPE_CHECKING:
    from crossrank_client.client import Client

__all__ = ["instrument", "timed", "uninstrument"]

_log = logging.getLogger("crossrank_client")
_installed: _Instruments | None = None


def instrument(
    *,
    model: Any = None,
    optimizer: Any = None,
    dataloader: Any = None,
    mesh: Any = None,
    communication: str = "calls",
    profiles: bool = True,
    last_words: bool = True,
) -> bool:
    """Records what this process does from now on. True if it does; never raises.

    model, optimizer, dataloader: one, or a list of them. The first optimizer ends the training step. mesh: a DeviceMesh to post;
    those of the model's parameters are found. communication: `calls` (every one with its completion), `ring` (from the flight recorder
    alone, nothing on the hot path), `none`. profiles: answer `crossrank profile`. last_words: post the flight recorder on SIGTERM.
    """
    global _installed  # noqa: PLW0603 -- one set of hooks a process
    client = crossrank_client.client()
    if client is None:
        return False
    uninstrument()
    try:
        _installed = _Instruments(client, communication, profiles=profiles, last_words=last_words)
        _installed.watch(_listed(model), _listed(optimizer), _listed(dataloader), _listed(mesh))
    except Exception:  # noqa: BLE001 -- the training goes on without
        _log.warning("crossrank: this job could not be instrumented; it goes on without.", exc_info=True)
        uninstrument()
        return False
    return True


def uninstrument() -> None:
    """Takes away everything that `instrument` installed."""
    global _installed
    found, _installed = _installed, None
    if found is not None:
        found.remove()


def timed(batches: Iterable[Any]) -> Iterator[Any]:
    """An iterator over any source of batches whose `next()` is a data phase, for loaders that cannot be instrumented."""
    return iter(batches) if _installed is None else _installed.phases.timed(batches)


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


class _Instruments:
    """Everything that is installed, in the order in which it goes in; out in the opposite one."""

    def __init__(self, client: Client, communication: str, *, profiles: bool, last_words: bool) -> None:
        if communication not in {"calls", "ring", "none"}:
            raise ValueError(f"communication is `calls`, `ring` or `none`, not {communication!r}")
        self._client = client
        self.calls = Calls(client) if communication == "calls" else None
        self.steps = Steps(client)
        self.phases = Phases(client, self.steps, self.calls)
        self._parts: list[Any] = [self.phases, self.steps]
        if self.calls is not None:
            self._parts.append(self.calls)
            self.calls.install()
        if communication != "none":
            self._parts.append(Ring(client, completions_only=self.calls is not None))
        if profiles:
            self._parts.append(Profiles(client, self.steps))
        if last_words:
            self._parts.append(LastWords(client))
        client.on_shutdown.append(uninstrument)

    def watch(self, models: list[Any], optimizers: list[Any], loaders: list[Any], meshes: list[Any]) -> None:
        """Puts hooks on the parts of the job."""
        for model in models:
            self.phases.watch_model(model)
            meshes += [mesh for mesh in meshes_of(model) if all(mesh is not known for known in meshes)]
        if models or optimizers:
            self.phases.watch_backward()
        for place, optimizer in enumerate(optimizers):
            self.phases.watch_optimizer(optimizer, ends_step=place == 0)
        for loader in loaders:
            if not self.phases.watch_loader(loader):
                _log.warning("crossrank: %s cannot be timed; use crossrank_client.torch.timed(loader).", type(loader).__name__)
        for mesh in meshes:
            post_mesh(self._client, mesh)

    def remove(self) -> None:
        """Takes everything away."""
        if uninstrument in self._client.on_shutdown:
            self._client.on_shutdown.remove(uninstrument)
        for part in reversed(self._parts):
            try:
                part.remove()
            except Exception:  # noqa: BLE001 -- the others still go
                _log.warning("crossrank: a hook could not be taken away.", exc_info=True)
