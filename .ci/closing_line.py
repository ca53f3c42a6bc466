"""Prints one closing line for several runs of pytest: what passed, failed and so on in all of them.

Each argument is the log of one run. A run that did not finish counts as one error, so that nothing is missing from the sum.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

CLOSING = re.compile(r"^=+ (.*\b(?:passed|failed|errors?|skipped|no tests ran)\b.*) in ([\d.]+)s?.*=+$", re.MULTILINE)
ORDER = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warnings", "errors")
PLURAL = {"warning": "warnings", "error": "errors"}


def main(logs: list[str]) -> None:
    """Prints the sum of the logs."""
    counts: Counter[str] = Counter()
    seconds = 0.0
    for log in logs:
        lines = CLOSING.findall(Path(log).read_text(errors="replace"))
        if not lines:
            counts["errors"] += 1
            continue
        text, took = lines[-1]
        seconds += float(took)
        for number, word in re.findall(r"(\d+) (\w+)", text):
            counts[PLURAL.get(word, word)] += int(number)
    parts = ", ".join(f"{counts[w]} {w[:-1] if counts[w] == 1 and w in PLURAL.values() else w}" for w in ORDER if counts[w])
    sys.stdout.write(f" {parts or 'no tests ran'} in {seconds:.2f}s ".center(80, "=") + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
