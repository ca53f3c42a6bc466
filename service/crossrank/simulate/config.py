"""What a simulated training job looks like: its layout, its time scales, its noise and its wrong clocks.

Layout: `rank = pp * (dp * tp) + d * tp + t`, tensor parallelism fastest, so a tensor-parallel group sits on one host as it does
in practice. Ranks `[h * ranks_per_host, (h + 1) * ranks_per_host)` form host `h` and share its clock. Every default gives a
64-rank job with steps of about a third of a second. Times are int64 nanoseconds unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from crossrank.errors import BadParameter

_RANKS_MAX = 16_384


@dataclass(frozen=True, slots=True)
class ClockConfig:
    """How wrong the hosts' clocks are. All of it is drawn per host, evenly between minus and plus the given size."""

    offset_ns: int = 50_000_000
    drift_ppm: float = 40.0
    wander_ppm: float = 0.03  # random-walk frequency, ppm per sqrt(second)
    sine_ppm: float = 0.2  # slow thermal swing with a period of 120 s
    step_fraction: float = 0.0  # share of hosts whose clock jumps once in mid-run
    step_ns: tuple[int, int] = (1_000_000, 30_000_000)  # size of a jump, either direction
    slew_fraction: float = 0.0  # share of hosts that run 500 ppm fast or slow for two seconds


@dataclass(frozen=True, slots=True)
class JobConfig:
    """One job. `dp`, `tp`, `pp` are the sizes of data, tensor and pipeline parallelism; their product is the number of ranks.

    Raises BadParameter (naming the field) when a value cannot be used.
    """

    job: str = "simulated"
    dp: int = 4
    tp: int = 4
    pp: int = 4
    steps: int = 20
    microbatches: int = 4
    ranks_per_host: int = 8
    start_ns: int = 1_780_272_000_000_000_000  # 2026-06-01T00:00:00Z, true time of the first step
    layers: int = 2  # tensor-parallel all-reduces inside each forward and each backward
    buckets: int = 4  # gradient all-reduces of a step
    overlap: bool = False  # gradient all-reduces run on a lane of their own during the last backward
    loader_ns: int = 2_000_000
    forward_ns: int = 12_000_000  # of one microbatch on one stage
    backward_ns: int = 24_000_000
    optimizer_ns: int = 5_000_000
    compute_noise: float = 0.01  # relative, lognormal
    hiccup_probability: float = 0.0005  # of one piece of compute being held up by the machine
    hiccup: float = 0.3  # mean length of such a hold-up relative to the piece
    gap_ns: int = 3_000  # mean idle time between two spans of a lane
    latency_ns: int = 15_000  # of any communication, once everybody is there
    jitter_median_ns: int = 15_000  # how long after the common end a member returns
    jitter_sigma: float = 0.7
    tail_probability: float = 0.02
    tail_ns: int = 400_000
    transfer_noise: float = 0.1
    activation_bytes: int = 16 << 20
    gradient_bytes: int = 64 << 20  # of one bucket
    fast_gbs: float = 200.0  # inside a host (tensor parallel), GB = 1e9 bytes
    network_gbs: float = 25.0  # between hosts
    clocks: ClockConfig = ClockConfig()

    def __post_init__(self) -> None:
        for field in ("dp", "tp", "pp", "steps", "microbatches", "ranks_per_host", "layers", "buckets"):
            if getattr(self, field) < 1:
                raise BadParameter(f"{field} must be at least 1, not {getattr(self, field)}", field=field)
        if self.world_size > _RANKS_MAX:
            raise BadParameter(f"{self.world_size} ranks are more than the {_RANKS_MAX} that can be simulated", field="dp")

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.dp * self.tp * self.pp

    @property
    def hosts(self) -> int:
        """Number of hosts, the last one may be partly filled."""
        return -(-self.world_size // self.ranks_per_host)

    @property
    def nominal_ns(self) -> int:
        """About how long the job takes without faults: places clock steps in mid-run whatever is injected."""
        pipeline = (self.microbatches + self.pp - 1) * (self.forward_ns + self.backward_ns)
        return self.steps * (self.loader_ns + pipeline + self.optimizer_ns)

    def transfer_ns(self, scope: str, members: int, size_bytes: int) -> float:
        """Time a communication takes after everybody is there: latency + bytes x bus factor / bandwidth."""
        bandwidth = self.fast_gbs if scope == "tp" else self.network_gbs
        factor = 1.0 if scope == "pp" else 2.0 * (members - 1) / members
        return self.latency_ns + size_bytes * factor / bandwidth
