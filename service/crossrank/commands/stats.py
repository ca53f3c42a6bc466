"""`crossrank stats`: every declared counter and size with its meaning, those that ask for attention first."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from crossrank.commands.figures import plain
from crossrank.commands.source import open_answers
from crossrank.counters import DECLARED, Declared

_ORDER = ("error", "data_loss", "info")


def run_stats(*, url: str | None, data: Path | None) -> None:
    """Prints one line a counter. Raises CrossrankError."""
    answers = open_answers(url, data)
    try:
        text = answers.download("/metrics", {}).decode()
    finally:
        answers.close()
    print("\n".join(stat_lines(text)))


def stat_lines(text: str) -> list[str]:
    """The declared counters of a Prometheus text, by severity: value, name, labels, meaning."""
    values: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        samples = [(s.labels, s.value) for s in family.samples if not s.name.endswith("_created")]
        values[family.name.removeprefix("crossrank_")] = samples
    lines = []
    for severity in _ORDER:
        lines.append(f"{severity}:")
        for declared in DECLARED:
            if declared.severity == severity:
                lines += _lines(declared, values.get(declared.name, []))
    return lines


def _lines(declared: Declared, samples: list[tuple[dict[str, str], float]]) -> list[str]:
    shown = samples or [({}, 0.0)]
    return [
        f"  {value:>16,.15g}  {declared.name}{_labels(labels)}  {declared.meaning if k == 0 else ''}".rstrip()
        for k, (labels, value) in enumerate(shown)
    ]


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f"{k}={plain(v)}" for k, v in sorted(labels.items())) + "}" if labels else ""
