"""Ranks of small real training jobs. Reads one JSON line a job, forks its ranks, and writes how each ended to a file.

One process imports PyTorch, which takes seconds, and every rank of every job is a fork of it: what a rank imports of the client, and
when, is its own. A line holds `argv` and, for each rank, its environment: `MODE KEY=VALUE…`, where MODE is one of MODES and keys are

    steps, offline (1: nobody takes the spans), slow=RANK:FIRST:LAST:MS (sleeps in forward), stuck=RANK:STEP (stops before its forward), skip=RANK:STEP (leaves the
    all-reduce of the loss out), communication, instrument (0: not at all), numbered (1: the job numbers its steps itself)

Work is sleep, so that four ranks on two busy cores keep their rhythm.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel


def _bend_clocks() -> None:
    """This process sees clocks that are wrong by an offset and run at a wrong rate, before anything else reads them."""
    said = os.environ.get("TEST_CLOCK")
    if said is None:
        return
    anchor_mono, anchor_wall, offset_ns, ppm = (int(part) for part in said.split(","))
    real = time.monotonic_ns

    def monotonic_ns() -> int:
        passed = real() - anchor_mono
        return anchor_mono + passed + passed * ppm // 1_000_000

    def time_ns() -> int:
        return monotonic_ns() - anchor_mono + anchor_wall + offset_ns

    time.monotonic_ns, time.time_ns = monotonic_ns, time_ns


FORWARD_S, BACKWARD_S = 0.006, 0.004


class _Nap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(FORWARD_S + Layer.extra_s)
        Layer.extra_s = 0.0
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(BACKWARD_S)
        return grad


class Layer(torch.nn.Module):
    """A matrix and a nap."""

    extra_s = 0.0  # of the next layer that runs

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Nap.apply(torch.relu(self.linear(x)))


class Loader:
    """Batches that take a moment."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def __iter__(self):
        for step in range(self._steps):
            time.sleep(0.002)
            yield torch.full((8, 64), float(step % 7))


class Faults:
    def __init__(self, rank: int, said: dict[str, str]) -> None:
        self._rank = rank
        self._slow = [int(n) for n in said.get("slow", "-1:0:0:0").split(":")]
        self._stuck = [int(n) for n in said.get("stuck", "-1:0").split(":")]
        self._skip = [int(n) for n in said.get("skip", "-1:0").split(":")]

    def before_forward(self, step: int) -> None:
        rank, first, last, ms = self._slow
        if rank == self._rank and first <= step <= last:
            Layer.extra_s = ms / 1000
        if self._stuck == [self._rank, step]:
            time.sleep(3600)

    def skips(self, step: int) -> bool:
        return self._skip == [self._rank, step]


def train(model: torch.nn.Module, said: dict[str, str], faults: Faults) -> list[float]:
    """Data parallel steps; the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = Loader(int(said["steps"]))
    numbered = said.get("numbered") == "1"
    if said.get("instrument", "1") == "1":
        assert instruments.instrument(
            model=model, optimizer=optimizer, dataloader=loader, communication=said.get("communication", "calls")
        )
    losses = []
    for step, batch in enumerate(loader):
        if numbered:
            client.step(step)
        faults.before_forward(step)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        if hasattr(mean, "full_tensor"):
            mean = mean.full_tensor()
        if not faults.skips(step):
            dist.all_reduce(mean)
        losses.append(float(mean))
    return losses


def data_parallel(said: dict[str, str], faults: Faults) -> list[float]:
    model = torch.nn.Sequential(*(Layer() for _ in range(3)))
    return train(DistributedDataParallel(model, bucket_cap_mb=0.02), said, faults)


def sharded(said: dict[str, str], faults: Faults) -> list[float]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    model = torch.nn.Sequential(*(Layer() for _ in range(3)))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return train(fully_shard(model, mesh=mesh), said, faults)


def pipeline(said: dict[str, str], faults: Faults) -> list[float]:
    rank, world = dist.get_rank(), dist.get_world_size()
    stage_module = Layer()
    stage = PipelineStage(stage_module, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = torch.optim.SGD(stage_module.parameters(), lr=0.01)
    assert instruments.instrument(model=stage_module, optimizer=optimizer)
    losses: list[float] = []
    for step in range(int(said["steps"])):
        client.step(step)
        faults.before_forward(step)
        batch, target, found = torch.ones(8, 64), torch.zeros(8, 64), []
        if rank == 0:
            schedule.step(batch)
        elif rank == world - 1:
            schedule.step(target=target, losses=found)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        total = torch.stack(found).sum() if found else torch.zeros(())
        dist.all_reduce(total.detach())
        losses.append(float(total))
    return losses


def restore(_said: dict[str, str], _faults: Faults) -> list[float]:
    """Everything that `instrument` touches is after `uninstrument` what it was before."""
    model = DistributedDataParallel(Layer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(list(torch.ones(4, 64)), batch_size=2)

    def touched() -> list[object]:
        return [
            torch.autograd.backward,
            torch._C._distributed_c10d.Work.__dict__["wait"],
            torch._C._dispatch_has_kernel_for_dispatch_key("c10d::allreduce_", "BackendSelect"),
            dict(model._forward_hooks),
            dict(model._forward_pre_hooks),
            dict(optimizer._optimizer_step_pre_hooks),
            dict(optimizer._optimizer_step_post_hooks),
            type(loader),
            signal.getsignal(signal.SIGTERM),
            "step" in vars(client.client()),
            list(client.client().on_answer),
            list(client.client().before_batch),
            list(client.client().on_shutdown),
            sorted(thread.name for thread in threading.enumerate()),
        ]

    before = touched()
    for _ in range(3):
        assert instruments.instrument(model=model, optimizer=optimizer, dataloader=loader)
        during = touched()
        assert [b == d for b, d in zip(before, during, strict=True)].count(True) <= 2, during
        first = client.client().current_step
        for batch in loader:
            model(batch).mean().backward()
            optimizer.step()
        assert client.client().current_step > (-1 if first is None else first), "steps go on where they were"
        instruments.uninstrument()
        assert touched() == before
    forked_children_die_alone()
    profiles_are_of_the_steps_asked_for()
    return []


def ring(_said: dict[str, str], _faults: Faults) -> list[float]:
    """The flight recorder's ring, look by look."""
    import ring_looks

    ring_looks.check()
    return []


def profiles_are_of_the_steps_asked_for() -> None:
    """The profiler runs from the first to the last step by number, once for a request that is repeated, and never too late."""
    from crossrank_client.torch.profiles import Profiles

    found: list[tuple[str, object]] = []

    class Heard:
        """A client that keeps what it is given."""

        rank, job, on_answer = 2, "job", []

        def mark(self, name: str, reason: str) -> None:
            found.append((name, reason))

        def post(self, where: str, body: bytes, _headers: dict[str, str]) -> SimpleNamespace:
            found.append((where.rpartition("=")[2], len(body) > 100))
            return SimpleNamespace(taken=True)

    boundaries: list = []
    heard = Heard()
    profiles = Profiles(heard, SimpleNamespace(boundaries=boundaries))
    running = []
    for step in range(3, 9):
        for rank in (3, 2):  # what is asked of another rank is not its own to answer
            profiles._at_answer({"profile": {"id": f"of {rank}", "rank": rank, "steps": 2, "first_step": 5}})
        boundaries[0](step)
        torch.ones(8, 8) @ torch.ones(8, 8)
        if profiles._running is not None:
            running.append(step)
    assert running == [5, 6]
    assert found == [("of%202", True)]
    profiles._at_answer({"profile": {"id": "late", "rank": 2, "steps": 2, "first_step": 3}})
    boundaries[0](9)
    assert found[1][0] == "profile.failed"
    profiles.remove()


def forked_children_die_alone() -> None:
    """A SIGTERM of a child is none of its parent, with whom it shares open files; it dies of it as if nobody had handled it."""
    assert instruments.instrument()
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(1)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
    (listener,) = (thread for thread in threading.enumerate() if thread.name == "crossrank-last-words")
    other = threading.Thread(target=instruments.uninstrument)  # which cannot give back signals
    other.start()
    other.join()
    assert not listener.is_alive()


def huggingface(said: dict[str, str], _faults: Faults) -> list[float]:
    """A Hugging Face Trainer with the callback."""
    import transformers

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": self.layer(x).square().mean()}

    arguments = transformers.TrainingArguments(
        output_dir=os.environ["TMPDIR"], max_steps=int(said["steps"]), per_device_train_batch_size=4, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True, gradient_accumulation_steps=2,
    )  # fmt: skip
    data = [{"x": torch.ones(64)} for _ in range(64)]
    transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[trainers.huggingface_callback()]).train()
    return []


def lightning_trainer(said: dict[str, str], _faults: Faults) -> list[float]:
    """A Lightning Trainer with the callback."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()

        def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    callback = trainers.lightning_callback()
    assert client.client().open_begun() == [], "nothing stands still before the training has begun"
    trainer = lightning.Trainer(
        max_steps=int(said["steps"]), accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=os.environ["TMPDIR"], callbacks=[callback],
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(list(torch.ones(64, 64)), batch_size=4))
    return []


MODES = {
    "ddp": data_parallel,
    "fsdp": sharded,
    "pipeline": pipeline,
    "restore": restore,
    "ring": ring,
    "huggingface": huggingface,
    "lightning": lightning_trainer,
}


def run(argv: list[str]) -> None:
    """One rank, from its first breath to its last."""
    mode, *pairs = argv
    said = dict(pair.split("=", 1) for pair in pairs)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{os.environ['TEST_STORE']}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    client.init()
    losses = MODES[mode](said, Faults(dist.get_rank(), said))
    instruments.uninstrument()
    dist.barrier()
    offline = said.get("offline") == "1"
    assert client.flush(0.5 if offline else 20) or offline, client.stats()
    Path(os.environ["TEST_RESULT"]).write_text(json.dumps({"losses": losses, "stats": client.stats()}))
    client.shutdown()
    dist.destroy_process_group()


def begin(argv: list[str], env: dict[str, str]) -> int:
    """Forks one rank; its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ.update(env)
        log = os.open(env["TEST_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        tempfile.tempdir = None  # the folder of this rank, not of the process it was forked from
        _bend_clocks()
        global client, instruments, trainers  # noqa: PLW0603 -- imported by each rank for itself, after its clocks are wrong
        import crossrank_client as client
        import crossrank_client.torch as instruments
        from crossrank_client.torch import trainers

        run(argv)
        code = 0
    except BaseException:  # noqa: BLE001 -- told in the log
        traceback.print_exc()
        instruments.uninstrument()
        client.shutdown()  # as at the end of any Python process
    finally:
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serves until its input ends; then no rank is left."""
    print("ready", flush=True)
    ranks: dict[int, str] = {}
    os.set_blocking(0, True)
    while True:
        readable, _, _ = select.select([0], [], [], 0.05)
        for pid in list(ranks):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                Path(ranks.pop(pid)).write_text(str(os.waitstatus_to_exitcode(status)))
        if not readable:
            continue
        line = sys.stdin.buffer.raw.readline()
        if not line:
            break
        asked = json.loads(line)
        pids = [begin(asked["argv"], env) for env in asked["ranks"]]
        ranks.update((pid, env["TEST_EXIT"]) for pid, env in zip(pids, asked["ranks"], strict=True))
        print(json.dumps(pids), flush=True)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)


main()
