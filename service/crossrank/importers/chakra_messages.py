"""The messages of a Chakra execution trace (MLCommons, et_def.proto), described here so that the protobuf runtime reads them.

A file is GlobalMetadata and then one Node after the other, each behind its length as a varint. Only the fields that are used are
described; all others are skipped by the runtime. Attributes hold one value of many types; their field numbers are consecutive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from crossrank.errors import UndecodableBody

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {  # attribute values by field number; lists of them are not used
    "double_val": (3, _FIELD.TYPE_DOUBLE),
    "float_val": (5, _FIELD.TYPE_FLOAT),
    "int32_val": (7, _FIELD.TYPE_INT32),
    "int64_val": (9, _FIELD.TYPE_INT64),
    "uint32_val": (11, _FIELD.TYPE_UINT32),
    "uint64_val": (13, _FIELD.TYPE_UINT64),
    "sint32_val": (15, _FIELD.TYPE_SINT32),
    "sint64_val": (17, _FIELD.TYPE_SINT64),
    "bool_val": (27, _FIELD.TYPE_BOOL),
    "string_val": (29, _FIELD.TYPE_STRING),
}
NODE_TYPES: Final = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)


def _field(
    name: str, number: int, kind: int, *, repeated: bool = False, of: str | None = None
) -> descriptor_pb2.FieldDescriptorProto:
    label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    return _FIELD(name=name, number=number, type=kind, label=label, type_name=of)  # type: ignore[arg-type]  # enums are ints


def _messages() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="crossrank/chakra.proto", package="crossrank.chakra", syntax="proto2")
    attribute = file.message_type.add(name="Attribute")
    attribute.field.append(_field("name", 1, _FIELD.TYPE_STRING))
    attribute.field.extend(_field(name, number, kind) for name, (number, kind) in _SCALARS.items())
    attributes = ".crossrank.chakra.Attribute"
    metadata = file.message_type.add(name="GlobalMetadata")
    metadata.field.append(_field("version", 1, _FIELD.TYPE_STRING))
    metadata.field.append(_field("attr", 2, _FIELD.TYPE_MESSAGE, repeated=True, of=attributes))
    node = file.message_type.add(name="Node")
    for name, number, kind in (("id", 1, _FIELD.TYPE_UINT64), ("name", 2, _FIELD.TYPE_STRING), ("type", 3, _FIELD.TYPE_INT32)):
        node.field.append(_field(name, number, kind))
    for name, number in (("ctrl_deps", 4), ("data_deps", 5)):
        node.field.append(_field(name, number, _FIELD.TYPE_UINT64, repeated=True))
    for name, number in (("start_time_micros", 6), ("duration_micros", 7)):
        node.field.append(_field(name, number, _FIELD.TYPE_UINT64))
    node.field.append(_field("attr", 10, _FIELD.TYPE_MESSAGE, repeated=True, of=attributes))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"crossrank.chakra.{name}"))
        for name in ("GlobalMetadata", "Node")
    }


def nodes_of(data: bytes) -> Iterator[dict[str, Any]]:
    """The metadata and then every node, as their JSON form has them. Raises UndecodableBody."""
    classes = _messages()
    at, first = 0, True
    while at < len(data):
        size, at = _varint(data, at)
        if at + size > len(data):
            raise UndecodableBody("The execution trace is cut off")
        try:
            message = classes["GlobalMetadata" if first else "Node"].FromString(data[at : at + size])
        except DecodeError as fault:
            raise UndecodableBody("Not a Chakra execution trace: neither JSON nor its protobuf messages") from fault
        at += size
        attrs = [{"name": a.name, **{f.name: v for f, v in a.ListFields() if f.name != "name"}} for a in message.attr]
        if first:
            yield {"version": message.version, "attr": attrs}
        else:
            yield _node(message, attrs)
        first = False


def _node(message: Any, attrs: list[dict[str, Any]]) -> dict[str, Any]:
    found = {field.name: value for field, value in message.ListFields() if field.name != "attr"}
    kind = found.get("type", 0)
    found["type"] = NODE_TYPES[kind] if 0 <= kind < len(NODE_TYPES) else "INVALID_NODE"
    for name in ("ctrl_deps", "data_deps"):
        found[name] = list(found.get(name, ()))
    return found | {"attr": attrs}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 63:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise UndecodableBody("Not a Chakra execution trace: neither JSON nor its protobuf messages")
