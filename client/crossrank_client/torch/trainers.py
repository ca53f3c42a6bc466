"""Callbacks for the trainers that own the training loop: Hugging Face `Trainer` and Lightning.

    Trainer(..., callbacks=[huggingface_callback("http://collector:4318", "llama-70b")])
    lightning.Trainer(callbacks=[lightning_callback("http://collector:4318", "llama-70b")])

Each starts the client if none runs, instruments model, optimizer and loader when the training begins (the trainer has wrapped them by
then), numbers the steps as the trainer does, and leaves nothing behind when it ends.
"""

from __future__ import annotations

from typing import Any

import crossrank_client
from crossrank_client import torch as instruments
from crossrank_client.torch.groups import meshes_of


def _start(url: str | None, job: str | None, **given: Any) -> bool:
    """Starts a client if there is none. True if this did it."""
    if crossrank_client.client() is not None:
        return False
    crossrank_client.init(url, job, **given)
    return True


def _end(started: bool) -> None:
    instruments.uninstrument()
    if started:
        crossrank_client.shutdown()


def huggingface_callback(url: str | None = None, job: str | None = None, **given: Any) -> Any:
    """A `transformers.TrainerCallback`. Arguments as of `crossrank_client.init`."""
    from transformers import TrainerCallback

    class CrossrankCallback(TrainerCallback):
        """Spans of a Trainer's steps, phases and communication."""

        def __init__(self) -> None:
            self._started = False

        def on_train_begin(self, _args: Any, state: Any, _control: Any, **parts: Any) -> None:
            self._started = _start(url, job, **given)
            instruments.instrument(
                model=parts.get("model"), optimizer=parts.get("optimizer"), dataloader=parts.get("train_dataloader")
            )
            # The first batch of an epoch is fetched before its first step begins.
            crossrank_client.step(state.global_step)

        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
            if not control.should_training_stop:
                crossrank_client.step(state.global_step)

        def on_train_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
            _end(self._started)

    return CrossrankCallback()


def lightning_callback(url: str | None = None, job: str | None = None, **given: Any) -> Any:
    """A `lightning.pytorch.Callback`. Arguments as of `crossrank_client.init`."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class CrossrankCallback(Callback):
        """Spans of a Lightning Trainer's steps, phases and communication."""

        def __init__(self) -> None:
            self._started = False
            self._forward: Any = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._started = _start(url, job, **given)
            instruments.instrument(optimizer=list(trainer.optimizers), mesh=meshes_of(pl_module))
            crossrank_client.step(trainer.global_step)

        def on_train_batch_start(self, *_: Any) -> None:
            # A Trainer calls `training_step`, not the module, so no hook of the module sees the pass.
            self._forward = crossrank_client.begin("forward", "compute")

        def on_before_backward(self, *_: Any) -> None:
            if self._forward is not None:
                self._forward.end()

        def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
            client = crossrank_client.client()
            if client is not None and client.current_step != trainer.global_step:  # not with every accumulated batch
                crossrank_client.step(trainer.global_step)

        def on_train_end(self, *_: Any) -> None:
            _end(self._started)

        def on_exception(self, *_: Any) -> None:
            _end(self._started)

    return CrossrankCallback()
