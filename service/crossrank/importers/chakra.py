"""Chakra execution traces (MLCommons) of one rank, protobuf or JSON, whose nodes were timed.

A node is an operation: COMP compute (of the host: other, where the device's are in the trace too), COMM_COLL a collective,
COMM_SEND and COMM_RECV messages, MEM_LOAD and MEM_STORE copies. Its data and control dependencies become `links`. Times are whole
microseconds. Communications carry no sequence number; they are matched by order within `pg_name`.

PyTorch's own execution graphs have no times at all: they say what depends on what, and only the Kineto trace recorded with them says
when. Nodes with the number of their record function (`rf_id`) are laid over its spans (model.graph_nodes); without such numbers a graph is
refused with that advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final

from crossrank.errors import UndecodableBody
from crossrank.importers.chakra_messages import nodes_of
from crossrank.importers.json_objects import json_objects
from crossrank.importers.plain_bytes import read_plain
from crossrank.importers.rows import Rows, int64, span_id
from crossrank.importers.source import Recording, Source, settle_rank
from crossrank.limits import Limits
from crossrank.model.graph_nodes import NODE_LANE, UNTIMED_LANE

_COLLECTIVES: Final = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
    "reduce_scatter",
    "barrier",
)
_KINDS: Final = {
    "COMM_COLL_NODE": "collective",
    "COMM_SEND_NODE": "send",
    "COMM_RECV_NODE": "recv",
    "MEM_LOAD_NODE": "copy",
    "MEM_STORE_NODE": "copy",
    "COMP_NODE": "compute",
}
_EARLIEST_NS: Final = 1_000_000_000_000_000_000


def read(file: BinaryIO, source: Source, limits: Limits) -> Recording:
    """The timed nodes of one trace. Raises UndecodableBody, BodyTooLarge, BadParameter (no rank)."""
    data = read_plain(file, limits.body_bytes)
    is_json = data.lstrip()[:1] in (b"{", b"[")
    found = list(_flat(json_objects(data) if is_json else nodes_of(data)))
    head = next((v for v in found if isinstance(v, dict) and _get(v, "version") is not None and _get(v, "id") is None), {})
    nodes = [v for v in found if v is not head]
    rank = settle_rank(source, int64(_attributes(head).get("rank")), ends_in_rank=True)
    if not any(_microseconds(v, "start_time_micros") is not None or _rf_id(v) for v in nodes if isinstance(v, dict)):
        raise UndecodableBody(
            "The execution trace has no node with a time or an rf_id; import the Kineto trace that was recorded with it"
        )
    has_device = any(isinstance(v, dict) and _get(v, "type") == "COMP_NODE" and not _on_host(_attributes(v)) for v in nodes)
    rows = Rows(limits)
    for index, node in enumerate(nodes):
        if not isinstance(node, dict):
            rows.reject(index, "bad_json" if node is None else "not_an_object", rank=rank)
            continue
        if _microseconds(node, "start_time_micros") is None and _rf_id(node):
            _add_untimed(rows, index, node, rank, source.at_ns)
        else:
            _add(rows, index, node, rank, has_device=has_device)
    recording = rows.recording(rank)
    if recording.first_ns is not None and recording.first_ns < _EARLIEST_NS:
        rows.warnings.append("times are not since the epoch; they cannot be compared with other ranks")
    return recording


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    """Nodes may be listed in one object, or follow each other."""
    for value in values:
        if isinstance(value, dict) and isinstance(value.get("nodes"), list):
            yield {k: v for k, v in value.items() if k != "nodes"} | {"version": value.get("schema", "")}
            yield from value["nodes"]
        else:
            yield value


def _get(node: Mapping[str, Any], name: str) -> Any:
    """A field by its name in the schema or in protobuf's JSON (`startTimeMicros`)."""
    head, *rest = name.split("_")
    return node.get(name, node.get(head + "".join(part.capitalize() for part in rest)))


def _attributes(node: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes by name; the value stands under a field named after its type."""
    listed = node.get("attr", node.get("attrs"))
    found: dict[str, Any] = {}
    for attribute in listed if isinstance(listed, list) else []:
        if isinstance(attribute, dict) and isinstance(name := attribute.get("name"), str):
            found[name] = next((v for k, v in attribute.items() if k not in ("name", "type", "doc_string", "docString")), None)
    return found


def _microseconds(node: Mapping[str, Any], name: str) -> int | None:
    value = int64(_get(node, name))
    return value if value is not None and 0 <= value < 2**63 // 1000 else None


def _on_host(attributes: Mapping[str, Any]) -> bool:
    return attributes.get("is_cpu_op") in (True, 1, "true", "True")


def _rf_id(node: Mapping[str, Any]) -> int | None:
    """The number of the record function; 0 is none."""
    number = int64(_attributes(node).get("rf_id"))
    return number if number is not None and number > 0 else None


def _dependencies(node: Mapping[str, Any]) -> list[bytes] | None:
    depends = [d for name in ("data_deps", "ctrl_deps") for d in _listed(_get(node, name)) if int64(d) is not None]
    return list(dict.fromkeys(map(_node_id, depends))) or None


def _add_untimed(rows: Rows, index: int, node: Mapping[str, Any], rank: int, at_ns: int) -> None:
    """A node that only says what it depends on. It is on no timeline; its time is that of receipt."""
    rows.add(
        index,
        rank=rank,
        lane=UNTIMED_LANE,
        name=str(_get(node, "name") or "unnamed"),
        kind="mark",
        start_ns=at_ns,
        end_ns=at_ns,
        span_id=_node_id(_get(node, "id")),
        links=_dependencies(node),
        attrs={"node": int64(_get(node, "id")), "rf_id": _rf_id(node)},
    )


def _listed(value: Any) -> list[Any]:
    """A list, or the one thing that stands for it."""
    return value if isinstance(value, list) else [value]


def _node_id(value: Any) -> bytes:
    return span_id("chakra", int64(value))


def _add(rows: Rows, index: int, node: Mapping[str, Any], rank: int, *, has_device: bool) -> None:
    said = _attributes(node)
    type_ = _get(node, "type")
    kind = _KINDS.get(type_, "other") if isinstance(type_, str) else "other"
    if kind == "compute" and has_device and _on_host(said):
        kind = "other"
    start, length = _microseconds(node, "start_time_micros"), _microseconds(node, "duration_micros")
    if start is None:
        rows.reject(index, "missing_start", rank=rank)
        return
    number = int64(said.get("comm_type"))
    op = kind if kind in ("send", "recv") else None
    if kind == "collective" and number is not None and 0 <= number < len(_COLLECTIVES):
        op = _COLLECTIVES[number]
    stream = said.get("stream", said.get("tid"))
    lane = "chakra" if stream is None else f"cuda:{stream}" if not _on_host(said) else f"cpu:{stream}"
    rows.add(
        index,
        rank=rank,
        lane=f"{NODE_LANE} {lane}" if _rf_id(node) else lane,
        name=str(_get(node, "name") or "unnamed"),
        kind=kind,
        op=op,
        group=str(said["pg_name"]) if said.get("pg_name") not in (None, "") and op else None,
        peer=int64(said.get("comm_dst" if kind == "send" else "comm_src")) if kind in ("send", "recv") else None,
        bytes=int64(said.get("comm_size")),
        start_ns=start * 1000,
        end_ns=(start + (length or 0)) * 1000,
        span_id=_node_id(_get(node, "id")),
        links=_dependencies(node),
        attrs={
            "node": int64(_get(node, "id")),
            "tag": int64(said.get("comm_tag")) if kind in ("send", "recv") else None,
            **said,
            "rf_id": _rf_id(node),
        },
    )
