"""Figures in the terminal, by example."""

from __future__ import annotations

import pytest

from crossrank.analysis import wording
from crossrank.commands import figures


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "?"),
        (0, "0 ns"),
        (812, "812 ns"),
        (999_600, "1.00 ms"),
        (18_400, "18.4 µs"),
        (-18_400, "-18.4 µs"),
        (9_996_000, "10.0 ms"),
        (301_000_000, "301 ms"),
        (12_345_000_000, "12.3 s"),
        (119_000_000_000, "119 s"),
        (300_000_000_000, "5.00 min"),
    ],
)
def test_durations_have_three_digits_and_their_unit(ns, text):
    assert figures.duration(ns) == text


def test_an_error_is_in_the_unit_of_its_cost_unless_that_would_hide_it():
    assert figures.with_error(812_000_000, 9_000_000) == "812 ± 9.0 ms"
    assert figures.with_error(0, 4_000) == "0.00 ± 4.0 µs"
    assert figures.with_error(194_000_000, 30_000) == "194 ± 0.03 ms"
    assert figures.with_error(2_000_000_000, 1_000) == "2.00 s ± 1.00 µs"
    assert figures.with_error(1_117_000_000, 720_000) == "1.12 s ± 720 µs"
    assert figures.with_error(2_000_000_000, 0) == "2.00 s"
    assert figures.with_error(10, None) == "10 ns"


def test_sentences_of_findings_tell_errors_alike():
    assert wording.duration(151_000_000, 12_000_000) == "151 ± 12 ms"
    assert wording.duration(1_117_000_000, 720_000) == "1.12 s ± 720 us"
    assert wording.duration(2_000_000_000, 0) == "2.0 s"


def test_ranges():
    assert figures.ranges([]) == ""
    assert figures.ranges([5, 6, 7, 9, 12, 11, 5]) == "5-7, 9, 11-12"
    assert figures.ranges(range(0, 20, 2), most=3) == "0, 2, 4, …"


def test_sparkline_keeps_the_largest_of_each_bin():
    assert figures.sparkline([1.0, 2.0, 3.0]) == "▁▅█"
    assert figures.sparkline([5.0, 5.0, None]) == "▁▁ "
    assert figures.sparkline([]) == ""
    long = [1.0] * 999 + [9.0]
    assert figures.sparkline(long, width=10) == "▁▁▁▁▁▁▁▁▁█"


def test_counts_and_sizes():
    assert figures.count(1, "event") == "1 event"
    assert figures.count(12_345, "event") == "12,345 events"
    assert figures.size(3_355_443) == "3.20 MiB"
    assert figures.size(12) == "12 B"
    assert figures.percent(None) == "?"


def test_strange_names_are_made_plain():
    assert figures.plain("a\x1b[2Jb\n") == "a\ufffd[2Jb\ufffd"
    assert figures.plain("x" * 100, most=10) == "x" * 9 + "…"
