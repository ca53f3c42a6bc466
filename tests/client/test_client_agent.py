"""What the host agent reads: a made-up machine whose figures are known, cards that know little, and a real run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from crossrank_client.agent import machine as machine_module
from crossrank_client.agent.gpus import Gpus
from crossrank_client.agent.machine import Machine
from tests.support.stub_service import Reply, stub_service

SECOND_NS = 1_000_000_000


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def made_up(root: Path, *, at: int) -> None:
    """A machine after `at` seconds of steady work."""
    write(
        root,
        {
            "proc/stat": f"cpu {50 * at} 0 {25 * at} {100 * at} {20 * at} 0 0 {5 * at} 0 0\ncpu0 1\ncpu1 1\nprocs_running 3\n",
            "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
            "proc/vmstat": f"pgfault 1\npgmajfault {7 * at}\n",
            "proc/pressure/io": f"some avg10=0.00 total={250_000 * at}\nfull avg10=0.00 total=0\n",
            "proc/diskstats": f" 259 0 nvme0n1 1 0 {2 * at} 0 1 0 {4 * at} 0 0 {500 * at} 0\n 259 1 nvme0n1p1 1 0 9 0 1 0 9 0 0 9 0\n",
            "proc/net/snmp": f"Tcp: A RetransSegs B\nTcp: 1 {3 * at} 2\n",
            "sys/block/nvme0n1/x": "",
            "sys/block/loop0/x": "",
            "sys/class/net/eth0/statistics/rx_bytes": f"{1000 * at}\n",
            "sys/class/net/lo/statistics/rx_bytes": f"{1000 * at}\n",
            "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": f"{100 * at}\n",
            "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence": f"{at}\n",
        },
    )


def test_the_figures_of_a_made_up_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    now = [SECOND_NS]
    monkeypatch.setattr(machine_module, "mono_ns", lambda: now[0])
    machine = Machine(tmp_path)
    made_up(tmp_path, at=10)
    first = {name for name, _, _ in machine.read()}
    assert first == {"cpu.count", "load.runnable", "memory.total_bytes", "memory.available_bytes", "swap.used_bytes"}
    made_up(tmp_path, at=12)
    now[0] += 2 * SECOND_NS
    found = {(name, device): value for name, value, device in machine.read()}
    assert found == {
        ("cpu.count", None): 2,
        ("load.runnable", None): 3,
        ("cpu.busy_share", None): pytest.approx(0.4),
        ("cpu.iowait_share", None): pytest.approx(0.1),
        ("cpu.steal_share", None): pytest.approx(0.025),
        ("memory.total_bytes", None): 1_024_000,
        ("memory.available_bytes", None): 409_600,
        ("swap.used_bytes", None): 6144,
        ("memory.major_faults_per_s", None): 7,
        ("pressure.io_some_share", None): 0.25,
        ("disk.read_bytes_per_s", "nvme0n1"): 1024,
        ("disk.write_bytes_per_s", "nvme0n1"): 2048,
        ("disk.busy_share", "nvme0n1"): 0.5,
        ("tcp.retransmitted_per_s", None): 3,
        ("nic.rx_bytes_per_s", "eth0"): 1000,
        ("ib.rx_bytes_per_s", "mlx5_0:1"): 400,
        ("ib.out_of_sequence_per_s", "mlx5_0:1"): 1,
    }


def test_what_a_machine_lacks_is_absent_and_a_counter_set_back_gives_nothing(tmp_path: Path):
    assert Machine(tmp_path).read() == []
    machine = Machine(tmp_path)
    made_up(tmp_path, at=10)
    machine.read()
    made_up(tmp_path, at=1)
    assert not [name for name, _, _ in machine.read() if name.endswith("_per_s")]


class Nvml(SimpleNamespace):
    """A library whose card knows its power and utilisation only."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("NVML_") or name == "nvmlEventTypeXidCriticalError":
            return 0
        raise AttributeError(name)


def test_a_card_is_asked_only_what_it_knows():
    faults = [SimpleNamespace(device="card", eventData=79)]
    nvml = Nvml(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda _: "card",
        nvmlDeviceGetUtilizationRates=lambda _: SimpleNamespace(gpu=75, memory=50),
        nvmlDeviceGetPowerUsage=lambda _: 250_000,
        nvmlEventSetCreate=lambda: "events",
        nvmlDeviceRegisterEvents=lambda *_: None,
        nvmlEventSetWait_v2=lambda *_: faults.pop(),
    )
    gpus = Gpus(nvml)
    for _ in range(2):
        assert list(gpus.read()) == [
            ("gpu.busy_share", 0.75, "gpu:0"),
            ("gpu.memory_busy_share", 0.5, "gpu:0"),
            ("gpu.power_w", 250.0, "gpu:0"),
        ]
    assert gpus.xids() == [("gpu:0", 79)]
    assert gpus.xids() == []


def test_without_the_library_there_are_no_cards():
    gpus = Gpus(SimpleNamespace())
    assert (gpus.count, list(gpus.read()), gpus.xids()) == (0, [], [])


def test_the_agent_posts_until_it_is_stopped():
    with stub_service(lambda r: Reply({"accepted": r.body.count(b"\n"), "duplicate": 0, "rejected": 0})) as stub:
        command = [sys.executable, "-m", "crossrank_client.agent.main", "--url", stub.url, "--job", "j", "--every", "0.1"]
        env = {**os.environ, "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "CROSSRANK_HOST_NAME": "node1"}
        process = subprocess.Popen(command, env=env)
        deadline = time.monotonic() + 60
        while not any(b"cpu.busy_share" in r.body for r in stub.posted()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        body = b"".join(r.body for r in stub.posted())
    assert b'"rank":8,"host":"node1"' in body
    assert b'"lane":"host"' in body


@pytest.mark.parametrize("words", [["--url", "ftp://x", "--job", "j"], ["--url", "http://127.0.0.1:1"]])
def test_a_mistake_is_said_in_one_line(words: list[str]):
    env = {k: v for k, v in os.environ.items() if k not in {"CROSSRANK_JOB", "SLURM_JOB_NAME", "TORCHELASTIC_RUN_ID"}}
    command = [sys.executable, "-m", "crossrank_client.agent.main", *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
