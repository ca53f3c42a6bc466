"""Open spans say who is stuck in what, the longest first."""

from crossrank.analysis.open_spans import OpenSpan, open_spans
from tests.support.events import collective, message
from tests.support.timelines import timeline_of


def test_open_spans_are_listed_with_what_the_sender_said():
    timeline = timeline_of(
        {"rank": 0, "kind": "step", "name": "step", "step": 3, "at": (5, None)},
        collective(0, 9, (20, None)),
        collective(1, 9, (10, 30)),
        message("recv", 2, 1, None, (7, None)),
    )
    found = open_spans(timeline)
    assert [(s.rank, s.kind, s.since_ns, s.step) for s in found] == [
        (0, "step", 5, 3),
        (2, "recv", 7, None),
        (0, "collective", 20, 3),
    ]
    assert found[2] == OpenSpan(1, 0, "main", "collective", "all_reduce", "all_reduce", "g", 9, None, 3, 20)
    assert (found[1].peer, found[1].seq) == (1, None)
    assert open_spans(timeline, limit=1) == found[:1]
