"""Null places of dictionary columns hold a number that is in the dictionary.

Joining dictionaries looks up the numbers of null places as well, without looking at the mask; a -1 there reads memory in front of
the table of new numbers, and what it found is looked up in turn by the next join, which ended the process.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from crossrank.ingest.body_words import BodyWords
from crossrank.ingest.words import Words
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate


def outside(column: pa.DictionaryArray) -> int:
    """How many numbers, of null places too, are not in the dictionary (0 is always allowed)."""
    held = column.indices.buffers()[1]
    if held is None:
        return 0
    numbers = np.frombuffer(held, np.int32, len(column))
    return int(((numbers < 0) | (numbers >= max(1, len(column.dictionary)))).sum())


def test_words_of_compiled_and_plain_decoders():
    plain = Words(np.array([-1, 0, 1, -1], np.int32), ("a", "b")).array()
    assert plain.to_pylist() == [None, "a", "b", None]
    assert outside(plain) == 0
    body = b"ab"
    words = BodyWords(body, np.array([0, 1], np.int64), np.array([1, 1], np.int64))
    compiled = words.column(np.array([-1, 0, 1, -1], np.int64), 4)
    assert compiled.to_pylist() == [None, "a", "b", None]
    assert outside(compiled) == 0


def test_events_of_the_simulator():
    events = simulate(JobConfig(job="j", dp=2, tp=1, pp=1, steps=2), (), seed=1).events
    columns = [c for c in events.columns if pa.types.is_dictionary(c.type)]
    assert columns
    assert sum(outside(chunk) for column in columns for chunk in column.chunks) == 0
