"""Where this process stands in its job, as its launcher says it in the environment.

Launchers are asked in this order, and the first that names a rank is believed as a whole, so that a torchrun started by Slurm is
read as torchrun and not as a mixture of both.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """rank, world_size: None where the environment does not tell. attempt: how often the job was restarted before."""

    rank: int | None
    world_size: int | None
    local_rank: int | None
    attempt: int
    host: str
    launcher: str | None


# launcher: (rank, world size, local rank); each of alternatives, the first set counts.
LAUNCHERS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "torchrun": (("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",)),
    "openmpi": (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    "mvapich": (("MV2_COMM_WORLD_RANK",), ("MV2_COMM_WORLD_SIZE",), ("MV2_COMM_WORLD_LOCAL_RANK",)),
    "palsmpi": (("PALS_RANKID",), ("PALS_SIZE",), ("PALS_LOCAL_RANKID",)),
    "pmix": (("PMIX_RANK",), ("PMIX_SIZE", "SLURM_NTASKS"), ("MPI_LOCALRANKID", "SLURM_LOCALID")),
    "pmi": (("PMI_RANK",), ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK")),
    "slurm": (("SLURM_PROCID",), ("SLURM_NTASKS", "SLURM_NPROCS"), ("SLURM_LOCALID",)),
}
ATTEMPTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
JOBS = ("CROSSRANK_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME")


def place_of(env: Mapping[str, str] | None = None) -> Place:
    """What an environment (this process's own if none is given) says."""
    env = os.environ if env is None else env
    attempt = _first(env, ATTEMPTS) or 0
    host = env.get("CROSSRANK_HOST_NAME") or env.get("SLURMD_NODENAME") or socket.gethostname()
    for launcher, (ranks, sizes, locals_) in LAUNCHERS.items():
        rank = _first(env, ranks)
        if rank is not None:
            return Place(rank, _first(env, sizes), _first(env, locals_), attempt, host, launcher)
    return Place(None, None, None, attempt, host, None)


def job_of(env: Mapping[str, str] | None = None) -> str | None:
    """The job's name where the environment has one. torchrun's run id `none` is no name."""
    env = os.environ if env is None else env
    return next((env[name] for name in JOBS if env.get(name, "none") not in {"none", ""}), None)


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = env.get(name, "").strip()
        if text.isascii() and text.isdecimal() and int(text) < 2**31:
            return int(text)
    return None
