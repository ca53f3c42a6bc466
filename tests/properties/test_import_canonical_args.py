"""The compiled way to canonical arguments gives exactly what the parser gives, for whatever it takes on itself."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.importers.canonical_args import NO_NUMBER, canonical_args
from crossrank.limits import Limits
from crossrank.model.attrs import attrs_text

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-100, 100),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=2)), max_leaves=8
)
KEYS = st.one_of(
    st.sampled_from(["correlation", "cat", "caa", "catx", "ca", "a", "External id", "device", ""]), st.text(max_size=5)
)
SPACES = st.sampled_from([(", ", ": "), (",", ":"), (" ,\n\t ", " :\r\n")])


def run(texts: list[str], categories: list[str], category: list[int]) -> list[str | None]:
    found = canonical_args([msgspec.Raw(t.encode()) for t in texts], categories, np.array(category, dtype=np.int64))
    return [t if ok else None for t, ok in zip(found.texts.to_pylist(), found.plain.tolist(), strict=True)]


def parsed(text: str, category: str) -> str | None:
    args: dict[str, Any] = msgspec.json.decode(text)
    args.setdefault("cat", category)
    return attrs_text(args, Limits())[0]


@given(st.lists(st.tuples(st.dictionaries(KEYS, VALUES, max_size=6), SPACES), min_size=1, max_size=8), st.booleans())
def test_both_ways_give_the_same_text(rows, ascii_only):
    texts = [json.dumps(args, separators=spaces, ensure_ascii=ascii_only) for args, spaces in rows]
    words = ["kernel", "cpu_op", 'odd "é'][: len(texts)]
    category = [i % len(words) for i in range(len(texts))]
    for text, code, fast in zip(texts, category, run(texts, words, category), strict=True):
        assert fast is None or fast == parsed(text, words[code])


@given(
    st.lists(
        st.from_regex(r"-?(0|[1-9][0-9]{0,19})(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?", fullmatch=True), min_size=1, max_size=30
    )
)
def test_every_spelling_of_a_number(numbers):
    texts = [f'{{"x": [{n}], "y": {n}}}' for n in numbers]
    for text, fast in zip(texts, run(texts, ["k"], [0] * len(texts)), strict=True):
        assert fast is None or fast == parsed(text, "k")


@pytest.mark.parametrize(
    "text",
    [
        '{"External id": 12353, "queued": 0, "grid": [512, 1, 1], "blocks per SM": 4.740741, "est. achieved occupancy %": 75}',
        '{\n "Input Dims": [[2048, 5120], []], "Input type": ["c10::BFloat16", ""], "Concrete Inputs": ["[32, 256]"]}',
        "{}",
        '{"a": true, "b": null, "c": -5, "d": 0.5, "e": 1.0}',
    ],
)
def test_what_profilers_print_goes_the_fast_way(text):
    assert run([text], ["kernel"], [0]) == [parsed(text, "kernel")]


@pytest.mark.parametrize(
    "text",
    ['{"a": 1e5}', '{"a": 1.50}', '{"a": "é"}', '{"a": "\\n"}', '{"a": {}}', '{"a": 1, "a": 2}', '{"cat": 1}', "[]", "null", '{"a": 0.00001}', '{"a": -0}', '{"a": "' + "x" * 5000 + '"}'],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_parser(text):
    assert run([text], ["kernel"], [0]) == [None]


def test_the_correlation_is_read_on_the_way():
    texts = [
        '{"correlation": 77}',
        '{"a": 1}',
        '{"correlation": "7"}',
        '{"x": 1, "correlation":123456789012345678}',
        '{"correlation": -3}',
    ]
    found = canonical_args([msgspec.Raw(t.encode()) for t in texts], ["k"], np.zeros(5, dtype=np.int64))
    assert found.number.tolist() == [77, NO_NUMBER, NO_NUMBER, 123456789012345678, NO_NUMBER]
    assert found.plain.all()
