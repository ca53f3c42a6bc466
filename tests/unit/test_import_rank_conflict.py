"""Two files that claim one rank at the same time are refused with both names and advice that works; two windows of a rank are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crossrank.commands.import_ import _Claim, _refuse_contradiction
from crossrank.errors import BadParameter
from crossrank.importers.formats import format_named
from crossrank.importers.source import Source
from crossrank.limits import Limits


def claim(path: Path, rank: int | None, at_us: int) -> _Claim:
    span = {"ph": "X", "cat": "cpu_op", "name": "f", "pid": 1, "tid": 1, "ts": at_us, "dur": 10}
    head = {} if rank is None else {"distributedInfo": {"rank": rank}}
    path.write_text(json.dumps({**head, "baseTimeNanoseconds": 1_711_964_646_000_000_000, "traceEvents": [span]}))
    with path.open("rb") as file:
        return _Claim(path, format_named("kineto")(file, Source(str(path), None, 1), Limits()))


def test_both_names_are_said(tmp_path: Path):
    one, liar = claim(tmp_path / "a.json", 1, 100), claim(tmp_path / "rank3.json", 1, 105)
    with pytest.raises(BadParameter, match=r"a\.json and .*rank3\.json both say they are rank 1 .* leave the wrong one out"):
        _refuse_contradiction(liar, [one])


def test_a_rank_from_the_name_counts_as_one_from_the_file(tmp_path: Path):
    one, other = claim(tmp_path / "rank2.json", None, 100), claim(tmp_path / "b.json", 2, 100)
    with pytest.raises(BadParameter, match="rank 2 at the same time"):
        _refuse_contradiction(other, [one])


def test_windows_of_one_rank_and_files_of_several_ranks_agree(tmp_path: Path):
    claims = [claim(tmp_path / "a.json", 1, 100), claim(tmp_path / "b.json", 1, 1000)]
    _refuse_contradiction(claim(tmp_path / "c.json", 2, 100), claims)
    _refuse_contradiction(claims[1], claims[:1])
