"""The program that reads one untrusted pickle, in a process of its own with hard limits, and prints it as JSON.

It is run as a file, without site packages and without this package, so it uses the standard library only. A pickle is a
program for a stack machine; here that machine knows only the instructions that build plain values (the allow-list below). There
is no instruction among them that could name a class or call anything, so nothing in the file is ever executed: a REDUCE,
GLOBAL, INST, OBJ, EXT or PERSID ends the reading, whatever comes before it.

What remains is exhaustion. Lengths are checked against the bytes that are there; a list that contains itself, nesting beyond
MAX_DEPTH, and values that would unfold to more than MAX_NODES (a few hundred bytes can share one list 2**40 times) are found by
counting every container once before anything is unfolded. Memory and processor time are limited by the kernel.
"""

from __future__ import annotations

import json
import math
import pickletools
import resource
import sys
from typing import Any

MAX_DEPTH = 32
MAX_NODES = 10_000_000
MAX_TEXT = 256 << 20
MEMORY_BYTES = 2 << 30
CPU_S = 30
EXIT_REFUSED = 3

_MARK = object()
_SIMPLE = frozenset(
    [
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG1",
        "BINFLOAT",
    ]  # the argument is the value
)
_CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class Refused(Exception):
    """The pickle is not plain data, or not whole, or too much."""


class Machine:
    """The stack and the memo. Tuples become lists, as JSON has nothing else."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        """The value the pickle builds."""
        for opcode, argument, position in pickletools.genops(data):
            name = opcode.name
            if name in _SIMPLE:
                self.stack.append(argument)
            elif name in _CONSTANT:
                self.stack.append(_CONSTANT[name])
            elif name == "STOP":
                if len(self.stack) != 1:
                    raise Refused("the pickle ends in the middle of a value")
                return self.stack[0]
            else:
                step = getattr(self, "do_" + name.lower(), None)
                if step is None:
                    raise Refused(f"instruction {name} at byte {position} is not one that plain data needs; nothing was executed")
                step(argument)
        raise Refused("the pickle has no end")

    def _above_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise Refused("an instruction without its mark")
        items = self.stack[at + 1 :]
        del self.stack[at:]
        return items

    def _target(self, kind: type) -> Any:
        target = self.stack[-1]
        if type(target) is not kind:
            raise Refused("an instruction on the wrong kind of value")
        return target

    def do_proto(self, version: int) -> None:
        """The protocol number."""

    def do_frame(self, size: int) -> None:
        """A hint on sizes."""

    def do_mark(self, _: object) -> None:
        """Begins a group."""
        self.stack.append(_MARK)

    def do_empty_list(self, _: object) -> None:
        """[]."""
        self.stack.append([])

    def do_empty_dict(self, _: object) -> None:
        """{}."""
        self.stack.append({})

    def do_append(self, _: object) -> None:
        """One element."""
        value = self.stack.pop()
        self._target(list).append(value)

    def do_appends(self, _: object) -> None:
        """All elements above the mark."""
        values = self._above_mark()
        self._target(list).extend(values)

    def do_setitem(self, _: object) -> None:
        """One pair."""
        value, key = self.stack.pop(), self.stack.pop()
        self._set(self._target(dict), key, value)

    def do_setitems(self, _: object) -> None:
        """All pairs above the mark."""
        values = self._above_mark()
        target = self._target(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            self._set(target, key, value)

    def _set(self, target: dict[Any, Any], key: object, value: object) -> None:
        if not isinstance(key, str | int):
            raise Refused("a key that is neither text nor a number")
        target[key] = value

    def do_tuple(self, _: object) -> None:
        """All elements above the mark."""
        self.stack.append(self._above_mark())

    def _tuple(self, size: int) -> None:
        items = self.stack[-size:]
        if len(items) < size or any(i is _MARK for i in items):
            raise Refused("a tuple without its elements")
        self.stack[-size:] = [items]

    def do_tuple1(self, _: object) -> None:
        """One element."""
        self._tuple(1)

    def do_tuple2(self, _: object) -> None:
        """Two elements."""
        self._tuple(2)

    def do_tuple3(self, _: object) -> None:
        """Three elements."""
        self._tuple(3)

    def do_memoize(self, _: object) -> None:
        """Remembers the top under the next number."""
        self._remember(len(self.memo))

    def do_binput(self, place: int) -> None:
        """Remembers the top."""
        self._remember(place)

    do_long_binput = do_binput

    def _remember(self, place: int) -> None:
        if self.stack[-1] is _MARK:
            raise Refused("a mark is not a value")
        self.memo[place] = self.stack[-1]  # a dict: a huge number costs nothing

    def do_binget(self, place: int) -> None:
        """Puts a remembered value on top."""
        if place not in self.memo:
            raise Refused("a reference to nothing")
        self.stack.append(self.memo[place])

    do_long_binget = do_binget


def check(root: Any) -> None:
    """Raises Refused for a value that is cyclic, too deep, or too large once all shared parts are unfolded.

    Every container is visited once: its size is the sum of its parts' sizes, however often they are shared.
    """
    done: dict[int, tuple[int, int, int]] = {}  # id -> nodes, characters, depth
    inside: set[int] = set()
    work: list[tuple[Any, bool]] = [(root, False)]
    while work:
        value, leaving = work.pop()
        me = id(value)
        parts = _parts(value)
        if leaving:
            inside.discard(me)
            done[me] = _sum(parts, done)
            continue
        if me in done or not _is_container(value):
            continue
        if me in inside:
            raise Refused("a value that contains itself")
        inside.add(me)
        work.append((value, True))
        work.extend((p, False) for p in parts if _is_container(p) and id(p) not in done)
    nodes, characters, depth = _sum([root], done)
    if depth > MAX_DEPTH + 1:
        raise Refused(f"values nested deeper than {MAX_DEPTH}")
    if nodes > MAX_NODES or characters > MAX_TEXT:
        raise Refused(f"unfolds to {nodes:.3g} values, at most {MAX_NODES} are read")


def _is_container(value: object) -> bool:
    return type(value) in (list, dict)


def _parts(value: Any) -> list[Any]:
    if type(value) is dict:
        return [*value, *value.values()]
    return value if type(value) is list else []


def _sum(parts: list[Any], done: dict[int, tuple[int, int, int]]) -> tuple[int, int, int]:
    nodes, characters, depth = 1, 0, 0
    for part in parts:
        if _is_container(part):
            n, c, d = done[id(part)]
            nodes, characters, depth = nodes + n, characters + c, max(depth, d)
        else:
            nodes += 1
            characters += len(part) if type(part) is str else 8
    return nodes, characters, depth + 1


def finite(value: Any) -> Any:
    """The checked value with nan and the infinities as null."""
    if type(value) is list:
        return [finite(v) for v in value]
    if type(value) is dict:
        return {str(k): finite(v) for k, v in value.items()}
    return None if type(value) is float and not math.isfinite(value) else value


def main() -> None:
    """Reads standard input, prints JSON; exits with EXIT_REFUSED and one line on stderr when it will not."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        value = Machine().run(sys.stdin.buffer.read())
        check(value)
        text = json.dumps(finite(value), allow_nan=False, separators=(",", ":"))
    except Refused as refused:
        reason = str(refused)
    except (ValueError, IndexError, OverflowError, UnicodeError) as fault:  # what pickletools says of damaged bytes
        reason = f"damaged: {fault}"
    except MemoryError:
        reason = "needs more memory than is allowed"
    else:
        sys.stdout.write(text)
        return
    sys.stderr.write(reason[:500])
    sys.exit(EXIT_REFUSED)


if __name__ == "__main__":
    main()
