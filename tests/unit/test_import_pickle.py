"""Untrusted pickles: plain data comes out, everything else is refused and nothing of it ever runs."""

from __future__ import annotations

import json
import os
import pickle
import struct
from pathlib import Path

import pytest

from crossrank.errors import UndecodableBody
from crossrank.importers import pickle_child
from crossrank.importers.untrusted_pickle import pickle_as_json

END = b"."


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def hostile(witness: Path) -> dict[str, bytes]:
    """Pickles by what they try; those that could run something would create the witness."""

    class Reduces:
        def __reduce__(self):
            return os.system, (f"touch {witness}",)

    command = f"touch {witness}".encode()
    deep = b"]" * 200_000 + b"a" * 199_999
    layers = b"\x80\x02]q\x00" + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(30))
    return {
        **{f"reduce, protocol {p}": pickle.dumps(Reduces(), protocol=p) for p in range(6)},
        "inst": b"(S'" + command + b"'\nios\nsystem\n" + END,
        "obj": b"(cos\nsystem\nS'" + command + b"'\no" + END,
        "global and reduce": b"cos\nsystem\n(S'" + command + b"'\ntR" + END,
        "stack global": b"\x80\x04" + text("os") + text("system") + b"\x93" + text(command.decode()) + b"\x85R" + END,
        "newobj": b"\x80\x02cos\nsystem\n" + text(command.decode()) + b"\x85\x81" + END,
        "ext": b"\x80\x02\x82\x01" + END,
        "ext4": b"\x80\x02\x84\x01\x00\x00\x00" + END,
        "persistent id": b"Pwho\n" + END,
        "binary persistent id": b"\x80\x02" + text("who") + b"Q" + END,
        "build": b"\x80\x02}}b" + END,
        "memo bomb": layers + END,
        "bomb of text": b"\x80\x02" + text("x" * 100_000) + b"q\x00(" + b"h\x00" * 100_000 + b"l" + END,
        "long text, shared": b"\x80\x02](" + text("x" * 100_000) + b"q\x00" + b"h\x00" * 100_000 + b"e" + END,
        "contains itself": b"\x80\x02]q\x00h\x00a" + END,
        "contains itself, in a dict": b"\x80\x02}q\x00" + text("me") + b"h\x00s" + END,
        "200,000 deep list": b"\x80\x02" + deep + END,
        "200,000 deep tuples": b"\x80\x02)" + b"\x85" * 200_000 + END,
        "truncated 2**40 text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"abc" + END,
        "truncated 2**31 text": b"\x80\x02X" + struct.pack("<I", 1 << 31) + b"abc" + END,
        "bytearray of 2**36": b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + END,
        "negative long": b"\x80\x02\x8b" + struct.pack("<i", -5) + END,
        "empty": b"",
        "no end": b"\x80\x02]",
        "only an end": b"\x80\x02.",
        "two values": b"\x80\x02]].",
        "nothing to append to": b"\x80\x02]]" + b"a" * 5 + END,
        "mark remembered": b"\x80\x02(q\x00h\x00" + END,
        "reference to nothing": b"\x80\x02h\x07" + END,
        "appends without mark": b"\x80\x02]]e" + END,
        "odd pairs": b"\x80\x02}(NNNu" + END,
        "list as a key": b"\x80\x02}]Ns" + END,
        "append to a number": b"\x80\x02K\x01K\x02a" + END,
        "tuple of nothing": b"\x80\x02\x87" + END,
        "text, not a pickle": b"hello world",
    }


NAMES = sorted(hostile(Path("x")))


@pytest.mark.parametrize("name", NAMES)
def test_hostile_pickles_are_refused_and_nothing_runs(name, tmp_path):
    witness = tmp_path / "witness"
    with pytest.raises(UndecodableBody):
        pickle_as_json(hostile(witness)[name])
    assert not witness.exists()


def test_a_memo_place_of_any_size_costs_nothing():
    data = b"\x80\x02]r" + struct.pack("<I", 0x0FFFFFFF) + b"j" + struct.pack("<I", 0x0FFFFFFF)[:4] + b"0."
    with pytest.raises(UndecodableBody, match="POP"):
        pickle_as_json(data)
    assert pickle_as_json(b"\x80\x02]r" + struct.pack("<I", 0x0FFFFFFF) + END) == b"[]"


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_data_comes_out_as_it_is(protocol):
    value = {
        "version": "2.9",
        "entries": [{"a": (1, 2, 3), "b": [], "c": None, "d": [True, False], "n": -(2**63), "t": "é\n", "e": (), "one": (1,)}] * 3,
        "big": 2**63,
        "float": 1.5,
        "pairs": {"x": [(1, "y"), ("z", 2)]},
        "long": "x" * 300,
    }
    assert json.loads(pickle_as_json(pickle.dumps(value, protocol=protocol))) == json.loads(json.dumps(value))


def test_shared_parts_are_unfolded_within_the_budget():
    shared = ["x"] * 1000
    assert json.loads(pickle_as_json(pickle.dumps([shared] * 100))) == [shared] * 100


def test_numbers_json_cannot_say_become_null():
    assert pickle_as_json(pickle.dumps([float("nan"), float("inf"), 1.0])) == b"[null,null,1.0]"


def test_depth_is_allowed_up_to_the_limit():
    def nested(depth: int) -> bytes:
        return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + END

    assert pickle_as_json(nested(pickle_child.MAX_DEPTH)) == b"[" * pickle_child.MAX_DEPTH + b"]" * pickle_child.MAX_DEPTH
    with pytest.raises(UndecodableBody, match="nested deeper"):
        pickle_as_json(nested(pickle_child.MAX_DEPTH + 2))
