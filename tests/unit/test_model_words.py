"""Words of a column: codes that do not depend on delivery, and a cap that folds the rare ones."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from crossrank.limits import Limits
from crossrank.model.words import FOLDED, NO_CODE, folded_codes, word_codes
from tests.support.inprocess import InProcess


def spelled(codes: np.ndarray, words: tuple[str, ...]) -> list[str | None]:
    return [None if code == NO_CODE else words[code] for code in codes.tolist()]


@given(st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", "d", "e", "\x00", "ä"]))), st.integers(0, 8), st.randoms())
def test_the_most_frequent_words_stay_and_the_rest_is_folded(values, most, random):
    counts = Counter(v for v in values if v is not None)
    kept = sorted(counts, key=lambda word: (-counts[word], word))[:most]
    expected = [v if v is None or v in kept else FOLDED for v in values]
    codes, words, folded = folded_codes(pa.array(values, pa.string()), most)
    assert spelled(codes, words) == expected
    assert words == tuple(sorted(words))
    assert folded == sum(v == FOLDED for v in expected)
    shuffled = list(values)
    random.shuffle(shuffled)
    assert folded_codes(pa.array(shuffled, pa.string()), most)[1:] == (words, folded), "delivery does not matter"


def test_words_that_do_not_occur_have_no_code():
    column = pa.DictionaryArray.from_arrays(pa.array([1, None, 1], pa.int32()), pa.array(["unused", "z"]))
    codes, words = word_codes(column)
    assert (codes.tolist(), words) == ([0, NO_CODE, 0], ("z",))


def test_a_job_with_too_many_names_says_so_and_keeps_them_stored(tmp_path: Path):
    rows = [{"job": "j", "rank": 0, "name": f"op{i}", "start_ns": 1 + i * 10, "end_ns": i * 10 + 5} for i in range(50)]
    rows += [{"job": "j", "rank": 0, "name": "forward", "start_ns": 1000 + i * 10, "end_ns": 1005 + i * 10} for i in range(9)]
    body = "\n".join(json.dumps(row) for row in rows).encode()
    with InProcess(tmp_path, dataclasses.replace(Limits(), names_per_job=10)) as service:
        service.post("/v1/events", body, "application/x-ndjson")
        service.derive("j")
        assert service.get("/v1/jobs/j")["dropped"] == {"name_folded": 41}
        assert {e["name"] for e in service.get("/v1/jobs/j/events", limit=100)["events"]} == {row["name"] for row in rows}
