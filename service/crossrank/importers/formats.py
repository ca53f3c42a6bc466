"""The recorded formats by name, and the one function that turns a whole file into columns."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import BinaryIO, Final

from crossrank.errors import BadParameter, UndecodableBody
from crossrank.importers import chakra, crossrank_parquet, flight_recorder, kineto, nccl_inspector, whatif
from crossrank.importers.guess import hint
from crossrank.importers.rows import concatenated
from crossrank.importers.source import ReadFile, Recording, Source
from crossrank.limits import Limits
from crossrank.model.decoded import Decoded

FORMATS: Final[Mapping[str, ReadFile]] = {
    "chakra": chakra.read,
    "crossrank": crossrank_parquet.read,
    "flight_recorder": flight_recorder.read,
    "kineto": kineto.read,
    "nccl_inspector": nccl_inspector.read,
    "whatif": whatif.read,
}


def format_named(name: str) -> ReadFile:
    """The reader of a format; a file it refuses is told with what else it may be. Raises BadParameter (field `format`)."""
    if name not in FORMATS:
        raise BadParameter(f"format {name[:40]!r} is not one of {', '.join(sorted(FORMATS))}", field="format")
    read = FORMATS[name]

    def reading(file: BinaryIO, source: Source, limits: Limits) -> Recording:
        try:
            return read(file, source, limits)
        except UndecodableBody as fault:
            file.seek(0)
            if more := hint(file, name):
                raise UndecodableBody(f"{fault.message}; {more}", **fault.detail) from fault
            raise

    return reading


def open_recording(name: str, body: bytes, source: Source, limits: Limits) -> Recording:
    """A file held in memory. Raises BadParameter, UndecodableBody, BodyTooLarge."""
    return format_named(name)(BytesIO(body), source, limits)


def decode_file(name: str, body: bytes, source: Source, limits: Limits) -> Decoded:
    """All its events at once. Raises as `open_recording`."""
    return concatenated(open_recording(name, body, source, limits).batches, limits)
