"""PyTorch flight recorder dumps (versions 2.0 to 2.10, pickle or JSON): the last operations every rank enqueued.

One event an entry: kind collective, send or recv; start_ns is when the host enqueued it (`time_created_ns`), end_ns when the
watchdog found it completed, null while nobody did. An entry says more about progress than its times, in attrs:

    state     scheduled, started, completed        retired    taken off the watchdog's list: over, whenever that was
    record_id the order of enqueueing on the rank  pg_status  the group's own counters (last enqueued, started, completed)

gloo never fills the state or the times: there only `retired` tells done from pending. A rank whose dump holds no entries still
has the counters of its groups; each is kept as a `mark` named pg_status on the group, also for ranks with entries.

Groups are named by `process_group`[0], their members come from `pg_config`. `pg_id` is a counter of the process; where no entry
ties it to a name, both are numbered in order of creation, so they are paired in that order if there are as many of one as of the
other. The dump does not say whose it is: the rank comes from the file's name or the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import msgspec

from crossrank.errors import UndecodableBody
from crossrank.importers.element_sizes import tensors_bytes
from crossrank.importers.plain_bytes import read_plain
from crossrank.importers.rows import Rows, int64, span_id
from crossrank.importers.source import Recording, Source, settle_rank, stated_topology
from crossrank.importers.untrusted_pickle import looks_like_pickle, pickle_as_json
from crossrank.limits import Limits
from crossrank.model.kinds import canonical_op
from crossrank.model.progress import RECORDER_LANE, STATUS_NAME

_MESSAGE: Final = re.compile(r"(?:\w+:)?(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")
_COUNTERS: Final = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
_FRAMES_KEPT: Final = 16


class _Dump(msgspec.Struct):
    version: Any = None
    entries: list[Any] = []
    pg_config: dict[str, Any] = {}
    pg_status: dict[str, Any] = {}
    comm_lib_version: Any = None
    nccl_version: Any = None


@dataclass(frozen=True, slots=True)
class _Groups:
    """What a dump says of its process groups."""

    members: Mapping[str, list[int]]  # by name
    descs: Mapping[str, str]  # by name
    status: Mapping[int, dict[str, int | None]]  # by pg_id
    name_of: Mapping[int, tuple[str, str]]  # by pg_id: the name and where it is from, "entries" or "order"


def read(file: BinaryIO, source: Source, limits: Limits) -> Recording:
    """One dump. Raises UndecodableBody, BodyTooLarge, BadParameter (no rank)."""
    dump = _parse(read_plain(file, limits.body_bytes))
    rank = settle_rank(source, None, ends_in_rank=True)
    rows = Rows(limits)
    groups = _groups(dump)
    last_ns = 0
    for index, entry in enumerate(dump.entries):
        if not isinstance(entry, dict):
            rows.reject(index, "not_an_object", rank=rank)
            continue
        last_ns = max(last_ns, *(int64(entry.get(name)) or 0 for name in _TIMES))
        _add_entry(rows, index, entry, rank, groups)
    _add_status(rows, len(dump.entries), dump, rank, groups, last_ns or source.at_ns)
    return rows.recording(rank, stated_topology(None, {name: (m, groups.descs.get(name)) for name, m in groups.members.items()}))


_TIMES: Final = ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns")


def _parse(data: bytes) -> _Dump:
    text = pickle_as_json(data) if looks_like_pickle(data[:64]) else data
    try:
        dump = msgspec.json.decode(text, type=_Dump)
    except RecursionError as fault:
        raise UndecodableBody("The flight recorder dump is nested too deeply") from fault
    except (msgspec.DecodeError, UnicodeError) as fault:
        raise UndecodableBody(f"Not a flight recorder dump: {fault}") from fault
    version = str(dump.version)
    if dump.version is None or not version.startswith("2."):
        raise UndecodableBody(f"Flight recorder dumps of version 2.x are read; this says version {version[:40]!r}")
    return dump


def _groups(dump: _Dump) -> _Groups:
    members = {name: found for name, config in dump.pg_config.items() if (found := _members(config)) is not None}
    tied: dict[int, str] = {}
    for entry in dump.entries:
        if isinstance(entry, dict) and (pg_id := int64(entry.get("pg_id"))) is not None:
            tied.setdefault(pg_id, _group_name(entry)[0] or "")
    if set(members) == {""}:  # gloo knows only its default group, and leaves the name empty
        members = dict.fromkeys(_default_names(dump.entries), members[""])
    status = {
        pg_id: {name: int64(counters.get(name)) for name in _COUNTERS}
        for key, counters in dump.pg_status.items()
        if (pg_id := int64(key)) is not None and isinstance(counters, dict)
    }
    name_of = {pg_id: (name, "entries") for pg_id, name in tied.items()}
    by_order = _in_order_of_creation(sorted(status), list(dump.pg_config), tied)
    descs = {
        name: desc
        for name, config in dump.pg_config.items()
        if isinstance(config, dict) and isinstance(desc := config.get("desc"), str)
    }
    return _Groups(members, descs, status, {pg_id: (name, "order") for pg_id, name in by_order.items()} | name_of)


def _default_names(entries: Sequence[Any]) -> set[str]:
    found = {_group_name(entry) for entry in entries if isinstance(entry, dict)}
    names = {name for name, desc in found if name is not None and desc == "default_pg"}
    return names if len(names) == 1 else set()


def _in_order_of_creation(pg_ids: list[int], names: list[str], tied: Mapping[int, str]) -> dict[int, str]:
    """Names by number; empty unless both count alike and agree with every entry."""
    if len(pg_ids) != len(names) or not all(name.isdecimal() for name in names):
        return {}
    paired = dict(zip(pg_ids, sorted(names, key=int), strict=True))
    return paired if all(paired.get(pg_id, name) == name for pg_id, name in tied.items()) else {}


def _members(config: Any) -> list[int] | None:
    """Ranks of a group: a list, or the text of one."""
    ranks = config.get("ranks") if isinstance(config, dict) else None
    if isinstance(ranks, str):
        try:
            ranks = msgspec.json.decode(ranks)
        except (msgspec.DecodeError, RecursionError):
            return None
    if not isinstance(ranks, list):
        return None
    found = [int64(r) for r in ranks]
    return [r for r in found if r is not None] if found and None not in found else None


def _group_name(entry: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Name and description of an entry's group; versions before 2.2 have the number of the group only."""
    group = entry.get("process_group")
    if isinstance(group, list) and group:
        return str(group[0]), str(group[1]) if len(group) > 1 else None
    pg_id = int64(entry.get("pg_id"))
    return (str(pg_id) if pg_id is not None else None), None


def _add_entry(rows: Rows, index: int, entry: Mapping[str, Any], rank: int, groups: _Groups) -> None:
    title = str(entry.get("profiling_name") or "unnamed")
    group, desc = _group_name(entry)
    members = groups.members.get(group or "")
    message = _MESSAGE.fullmatch(title)
    kind, op, peer = ("collective", _operation(title), None)
    if message is not None:
        kind = op = message[1]
        peer = _global_rank(int(message[3]), members)
    created = int64(entry.get("time_created_ns"))
    pg_id = int64(entry.get("pg_id"))
    in_shapes, out_shapes = _shapes(entry.get("input_sizes")), _shapes(entry.get("output_sizes"))
    in_types, out_types = _words(entry.get("input_dtypes")), _words(entry.get("output_dtypes"))
    rows.add(
        index,
        rank=rank,
        lane=RECORDER_LANE,
        name=title,
        kind=kind,
        op=op,
        group=group,
        group_ranks=members,
        seq=int64(entry.get("p2p_seq_id" if message or entry.get("is_p2p") else "collective_seq_id")),
        peer=peer,
        bytes=_message_bytes(op, tensors_bytes(in_shapes, in_types), tensors_bytes(out_shapes, out_types)),
        dtype=next(iter(in_types or out_types), None),
        start_ns=created or None,
        end_ns=int64(entry.get("time_discovered_completed_ns")) or None,
        span_id=span_id("flight_recorder", entry.get("record_id"), created),
        attrs={
            "state": entry.get("state"),
            "retired": entry.get("retired"),
            "record_id": int64(entry.get("record_id")),
            "op_id": int64(entry.get("op_id")),
            "is_p2p": entry.get("is_p2p"),
            "timeout_ms": int64(entry.get("timeout_ms")),
            "pg_id": pg_id,
            "pg_desc": desc,
            "pg_status": groups.status.get(pg_id) if pg_id is not None else None,
            "started_ns": int64(entry.get("time_discovered_started_ns")) or None,
            "duration_ms": entry.get("duration_ms"),
            "thread": entry.get("thread_name"),
            "input_sizes": in_shapes or None,
            "output_sizes": out_shapes or None,
            "frames": _frames(entry.get("frames")),
        },
    )


def _add_status(rows: Rows, first_index: int, dump: _Dump, rank: int, groups: _Groups, at_ns: int) -> None:
    """The counters of every group as a mark at the dump's last moment."""
    for place, (pg_id, counters) in enumerate(sorted(groups.status.items())):
        name, known_from = groups.name_of.get(pg_id, (None, None))
        rows.add(
            first_index + place,
            rank=rank,
            lane=RECORDER_LANE,
            name=STATUS_NAME,
            kind="mark",
            group=name,
            group_ranks=groups.members.get(name or ""),
            start_ns=at_ns,
            end_ns=at_ns,
            span_id=span_id("pg_status", pg_id, at_ns),
            attrs={
                **counters,
                "pg_id": pg_id,
                "group_known_from": known_from,
                "entries": len(dump.entries),
                "version": str(dump.version),
                "library": dump.comm_lib_version or dump.nccl_version,
            },
        )


def _operation(title: str) -> str:
    """`nccl:_all_gather_base` -> all_gather; `nccl:all_reduce_barrier` -> barrier."""
    bare = title.rpartition(":")[2]
    return "barrier" if bare.endswith("barrier") else canonical_op(bare)


def _global_rank(rank_in_group: int, members: Sequence[int] | None) -> int | None:
    return members[rank_in_group] if members is not None and rank_in_group < len(members) else None


def _message_bytes(op: str, sent: int | None, received: int | None) -> int | None:
    """The whole message as bandwidth formulas mean it: what a member holds in the end of an all-gather, else what it puts in."""
    if op in ("all_gather", "recv"):
        return received if received is not None else sent
    return sent if sent is not None else received


def _shapes(value: Any) -> list[list[int]]:
    """Shapes of tensors; an odd one spoils the whole, as a total would be wrong."""
    shapes = [[int64(n) for n in shape] for shape in value if isinstance(shape, list)] if isinstance(value, list) else []
    return [[n for n in shape if n is not None] for shape in shapes] if all(None not in shape for shape in shapes) else []


def _words(value: Any) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list) else []


def _frames(value: Any) -> list[str] | None:
    """The innermost stack frames as `function file:line`."""
    if not isinstance(value, list):
        return None
    frames = [f for f in value[:_FRAMES_KEPT] if isinstance(f, dict)]
    return [f"{f.get('name')} {f.get('filename')}:{f.get('line')}" for f in frames] or None
