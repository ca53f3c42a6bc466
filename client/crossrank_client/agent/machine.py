"""CPU, memory, run queue, disks and network of a Linux machine, from /proc and /sys.

Rates are per second over the time since the last reading; shares are 0 to 1. Each reading is a name, a value and, where a machine has several,
the `device`. A file that is missing, as in many containers, leaves its readings out.

    cpu.busy_share, cpu.iowait_share, cpu.steal_share     /proc/stat; of all processors
    cpu.count, load.runnable, pressure.*_some_share       /proc/stat, /proc/pressure (stalled for want of cpu, memory, io)
    memory.total_bytes, memory.available_bytes, swap.used_bytes, memory.major_faults_per_s
    disk.read_bytes_per_s, disk.write_bytes_per_s, disk.busy_share                  whole disks of /proc/diskstats
    nic.rx_bytes_per_s, nic.tx_bytes_per_s, nic.errors_per_s, nic.dropped_per_s      /sys/class/net without loopback
    tcp.retransmitted_per_s                                                          /proc/net/snmp
    ib.*                                                  /sys/class/infiniband; data counters are in units of 4 bytes there
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crossrank_client.agent.reading import Counters, number_of, text_of
from crossrank_client.clock import mono_ns

SECTOR_BYTES = 512
IB_WORD_BYTES = 4
LOOK_AGAIN = 60  # readings until devices that came or went are noticed
IB_COUNTERS = {
    "port_rcv_data": ("ib.rx_bytes_per_s", IB_WORD_BYTES),
    "port_xmit_data": ("ib.tx_bytes_per_s", IB_WORD_BYTES),
    "port_xmit_wait": ("ib.tx_wait_per_s", 1),
    "symbol_error": ("ib.symbol_errors_per_s", 1),
    "link_downed": ("ib.link_downed_per_s", 1),
    "port_rcv_errors": ("ib.rx_errors_per_s", 1),
    "port_xmit_discards": ("ib.tx_discards_per_s", 1),
}
IB_MORE_COUNTERS = {
    "out_of_sequence": ("ib.out_of_sequence_per_s", 1),
    "local_ack_timeout_err": ("ib.ack_timeouts_per_s", 1),
    "np_cnp_sent": ("ib.congestion_notices_sent_per_s", 1),
    "rp_cnp_handled": ("ib.congestion_notices_handled_per_s", 1),
}
NIC_COUNTERS = {
    "rx_bytes": "nic.rx_bytes_per_s",
    "tx_bytes": "nic.tx_bytes_per_s",
    "rx_errors": "nic.rx_errors_per_s",
    "tx_errors": "nic.tx_errors_per_s",
    "rx_dropped": "nic.rx_dropped_per_s",
    "tx_dropped": "nic.tx_dropped_per_s",
}
Reading = tuple[str, float, "str | None"]  # name, value, device


class Machine:
    """Readings of one machine. root: where `proc` and `sys` are."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc, self._sys = root / "proc", root / "sys"
        self._counters = Counters()
        self._readings = 0
        self._files: list[tuple[str, str, Path, float]] = []  # metric, device, file, factor
        self._disks: frozenset[str] = frozenset()

    def read(self) -> list[Reading]:
        """All readings of now."""
        if self._readings % LOOK_AGAIN == 0:
            self._files = [*self._nic_files(), *self._ib_files()]
            self._disks = frozenset(p.name for p in _listed(self._sys / "block") if not p.name.startswith(("loop", "ram", "zram")))
        self._readings += 1
        counters: dict[str, tuple[int, float]] = {}
        found = [*self._cpu(counters), *self._memory(counters), *self._pressure(counters)]
        self._disk(counters)
        self._tcp(counters)
        for metric, device, path, factor in self._files:
            value = number_of(path)
            if value is not None:
                counters[f"{metric}\0{device}"] = (mono_ns(), value * factor)
        rates = self._counters.rates(counters)
        return [*found, *_shares(rates), *_rates(rates)]

    def _cpu(self, counters: dict[str, tuple[int, float]]) -> Iterator[Reading]:
        text = text_of(self._proc / "stat")
        if text is None:
            return
        lines = text.splitlines()
        ticks = [float(word) for word in lines[0].split()[1:9]]
        if len(ticks) == 8:
            now = mono_ns()
            for name, value in (("total", sum(ticks)), ("idle", ticks[3]), ("iowait", ticks[4]), ("steal", ticks[7])):
                counters[f"#cpu.{name}"] = (now, value)
        count = sum(line.startswith("cpu") for line in lines) - 1
        if count > 0:
            yield "cpu.count", count, None
        running = [line.split()[1] for line in lines if line.startswith("procs_running ")]
        if running:
            yield "load.runnable", float(running[0]), None

    def _memory(self, counters: dict[str, tuple[int, float]]) -> Iterator[Reading]:
        kib = {}
        for line in (text_of(self._proc / "meminfo") or "").splitlines():
            name, _, rest = line.partition(":")
            if name in {"MemTotal", "MemAvailable", "SwapTotal", "SwapFree"}:
                kib[name] = int(rest.split()[0])
        for name, metric in (("MemTotal", "memory.total_bytes"), ("MemAvailable", "memory.available_bytes")):
            if name in kib:
                yield metric, kib[name] * 1024, None
        if "SwapTotal" in kib and "SwapFree" in kib:
            yield "swap.used_bytes", (kib["SwapTotal"] - kib["SwapFree"]) * 1024, None
        at = (vm := text_of(self._proc / "vmstat") or "").find("\npgmajfault ")
        if at >= 0:
            counters["memory.major_faults_per_s\0"] = (mono_ns(), float(vm[at + 12 :].split(maxsplit=1)[0]))

    def _pressure(self, counters: dict[str, tuple[int, float]]) -> Iterator[Reading]:
        for what in ("cpu", "memory", "io"):
            text = text_of(self._proc / "pressure" / what)
            if text is not None and text.startswith("some ") and "total=" in text:
                stalled_us = float(text.splitlines()[0].rpartition("total=")[2])
                counters[f"pressure.{what}_some_share\0"] = (mono_ns(), stalled_us / 1e6)
        yield from ()

    def _disk(self, counters: dict[str, tuple[int, float]]) -> None:
        now = mono_ns()
        for line in (text_of(self._proc / "diskstats") or "").splitlines():
            words = line.split()
            if len(words) >= 13 and words[2] in self._disks:
                counters[f"disk.read_bytes_per_s\0{words[2]}"] = (now, float(words[5]) * SECTOR_BYTES)
                counters[f"disk.write_bytes_per_s\0{words[2]}"] = (now, float(words[9]) * SECTOR_BYTES)
                counters[f"disk.busy_share\0{words[2]}"] = (now, float(words[12]) / 1e3)

    def _tcp(self, counters: dict[str, tuple[int, float]]) -> None:
        lines = [line.split() for line in (text_of(self._proc / "net" / "snmp") or "").splitlines() if line.startswith("Tcp:")]
        if len(lines) == 2 and "RetransSegs" in lines[0]:
            counters["tcp.retransmitted_per_s\0"] = (mono_ns(), float(lines[1][lines[0].index("RetransSegs")]))

    def _nic_files(self) -> Iterator[tuple[str, str, Path, float]]:
        for nic in _listed(self._sys / "class" / "net"):
            if nic.name != "lo":
                for file, metric in NIC_COUNTERS.items():
                    yield metric, nic.name, nic / "statistics" / file, 1.0

    def _ib_files(self) -> Iterator[tuple[str, str, Path, float]]:
        for card in _listed(self._sys / "class" / "infiniband"):
            for port in _listed(card / "ports"):
                for folder, counters in (("counters", IB_COUNTERS), ("hw_counters", IB_MORE_COUNTERS)):
                    for file, (metric, factor) in counters.items():
                        yield metric, f"{card.name}:{port.name}", port / folder / file, factor


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _shares(rates: dict[str, float]) -> Iterator[Reading]:
    total = rates.get("#cpu.total", 0.0)
    if total > 0 and "#cpu.idle" in rates and "#cpu.iowait" in rates:
        yield "cpu.busy_share", 1 - (rates["#cpu.idle"] + rates["#cpu.iowait"]) / total, None
    for name in ("iowait", "steal"):
        if total > 0 and f"#cpu.{name}" in rates:
            yield f"cpu.{name}_share", rates[f"#cpu.{name}"] / total, None


def _rates(rates: dict[str, float]) -> Iterator[Reading]:
    for key, value in rates.items():
        if not key.startswith("#"):
            metric, _, device = key.partition("\0")
            yield metric, value, device or None
