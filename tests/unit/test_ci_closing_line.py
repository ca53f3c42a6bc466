"""The last line of .ci/run: the sum of all runs of pytest, with a run that broke off as an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "closing_line.py"
GOOD = "collected 3 items\n======= 3 passed, 1 warning in 61.50s (0:01:01) =======\n"
BAD = "===== 1 failed, 2 passed, 1 skipped in 2.25s =====\nmake: *** [test] Error 1\n"
BROKEN = "collected 9 items\nmake: *** [test] Killed\n"


@pytest.mark.parametrize(
    ("logs", "line"),
    [
        ((GOOD,), "3 passed, 1 warning in 61.50s"),
        ((GOOD, BAD), "1 failed, 5 passed, 1 skipped, 1 warning in 63.75s"),
        ((GOOD, BROKEN), "3 passed, 1 warning, 1 error in 61.50s"),
        ((BROKEN, BROKEN), "2 errors in 0.00s"),
    ],
)
def test_closing_line_is_the_sum_of_all_runs(tmp_path, logs, line):
    paths = [tmp_path / str(n) for n in range(len(logs))]
    for path, text in zip(paths, logs, strict=True):
        path.write_text(text)
    said = subprocess.run([sys.executable, SCRIPT, *map(str, paths)], capture_output=True, text=True, check=True).stdout
    assert said.strip().strip("= ") == line
    assert said.startswith("=")
    assert said.endswith("=\n")
