"""The tags of messages: an integer with which a receive chooses among the messages of one sender, as MPI and gloo have it.

Senders put it into the event's attributes as `tag`. Attributes are canonical JSON text, so it is found by one expression over the
column; texts with objects inside, where another `tag` may stand, are parsed.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossrank.model.arrays import BoolArray, Int8Array, Int64Array
from crossrank.model.kinds import RECV, SEND

_TAG: Final = r'[{,]"tag":(?P<tag>-?\d{1,18})[,}]'


def message_tags(events: pa.Table, kind: Int8Array) -> tuple[Int64Array, BoolArray]:
    """([n] tag, 0 where there is none; [n] has one) of the messages among n events."""
    tag, has_tag = np.zeros(len(kind), dtype=np.int64), np.zeros(len(kind), dtype=np.bool_)
    is_message = (kind == SEND) | (kind == RECV)
    rows = np.flatnonzero(is_message)
    if len(rows) == 0 or "attrs" not in events.column_names:
        return tag, has_tag
    texts = events.column("attrs").filter(pa.array(is_message)).combine_chunks()
    found = pc.struct_field(pc.extract_regex(texts, _TAG), "tag")
    has_tag[rows] = pc.is_valid(found).to_numpy(zero_copy_only=False)
    tag[rows] = pc.fill_null(pc.cast(found, pa.int64()), 0).to_numpy(zero_copy_only=False)
    nested = pc.and_(pc.is_valid(found), pc.greater(pc.count_substring(texts, "{"), 1))
    for place in np.flatnonzero(pc.fill_null(nested, False).to_numpy(zero_copy_only=False)).tolist():
        said = msgspec.json.decode(texts[place].as_py()).get("tag")
        row = rows[place]
        has_tag[row] = type(said) is int and abs(said) < 1 << 62
        tag[row] = said if has_tag[row] else 0
    return tag, has_tag
