"""Stated causes, sends that wait for their receiver, and an order in which causes come first."""

from __future__ import annotations

from crossrank.analysis.rendezvous import LEAST, sends_wait
from crossrank.analysis.replay import build_replay, replay_ns
from crossrank.analysis.whatif import Change, predict
from crossrank.model.topology import Topology
from tests.support.events import message, trace_of
from tests.support.timelines import timeline_of


def link(*numbers: int) -> list[bytes]:
    return [n.to_bytes(8, "big") for n in numbers]


def test_links_are_looked_up_in_the_rank_first_then_in_the_job():
    trace = trace_of(
        {"at": (0, 10), "span_id": 1},
        {"at": (20, 30), "span_id": 2, "links": link(1, 7, 2, 99)},  # own rank, another rank, itself, nobody
        {"rank": 1, "at": (0, 10), "span_id": 1},
        {"rank": 1, "at": (20, 30), "span_id": 7, "links": link(1)},
        {"rank": 2, "at": (0, 5), "span_id": 8, "links": link(1)},  # two ranks have it: nobody knows which
    )
    edges = {(int(trace.span_id[c]), int(trace.rank[c]), int(trace.span_id[e]), int(trace.rank[e]))
             for c, e in zip(trace.link_cause, trace.link_effect, strict=True)}  # fmt: skip
    assert edges == {(1, 0, 2, 0), (7, 1, 2, 0), (1, 1, 7, 1)}


def test_an_operation_moves_with_its_stated_cause():
    """b on another lane follows a after 5 ns; c has to wait for b. Zero-length spans at one instant keep their order."""
    timeline = timeline_of(
        {"name": "a", "at": (0, 100), "span_id": 1},
        {"name": "b", "lane": "other", "at": (105, 205), "span_id": 2, "links": link(1)},
        {"name": "z", "lane": "third", "at": (205, 205), "span_id": 3, "links": link(2)},
        {"name": "y", "lane": "fourth", "at": (205, 205), "span_id": 4, "links": link(3)},
        {"name": "c", "at": (205, 300), "span_id": 5, "links": link(4)},
    )
    graph = build_replay(timeline)
    assert (replay_ns(graph)[graph.order] == graph.recorded_ns[graph.order]).all()
    found = predict(graph, _one_rank(), [Change(name="a", scale=0.5), Change(name="b", scale=0.1)])
    assert (found.replay_error, found.predicted_ns) == (0.0, 50 + 5 + 10 + 95)


def test_links_in_a_circle_or_into_the_future_are_no_causes():
    timeline = timeline_of(
        {"name": "a", "at": (0, 0), "span_id": 1, "links": link(2)},
        {"name": "b", "lane": "other", "at": (0, 0), "span_id": 2, "links": link(1)},
        {"name": "c", "at": (10, 20), "span_id": 3, "links": link(4)},
        {"name": "d", "lane": "other", "at": (30, 40), "span_id": 4},
    )
    graph = build_replay(timeline)
    assert sorted(graph.order.tolist()) == list(range(8))
    assert (replay_ns(graph) == graph.recorded_ns).all()


def _sends(ends: int, count: int, lane: str = "sends") -> bool:
    """Whether sends wait that begin at 0, whose receivers come 50 later, and that end at `ends`."""
    rows = []
    for i in range(count):
        at = 1_000 * i
        rows.append(message("send", 0, 1, i, (at, at + ends), lane=lane))
        rows.append(message("recv", 1, 0, i, (at + 50, at + 60), lane="receives"))
        rows.append({"at": (at + 100, at + 200)})
    timeline = timeline_of(*rows)
    return sends_wait(timeline.trace, timeline.matches.messages, timeline.start_ns, timeline.end_ns)


def test_sends_wait_when_none_of_many_ended_before_its_receiver_came():
    assert _sends(60, LEAST)
    assert not _sends(10, LEAST)  # buffered
    assert not _sends(60, LEAST - 1)  # too few to tell
    assert not _sends(60, LEAST, lane="main")  # a call of the program
    assert not _sends(60, 0)


def _one_rank() -> Topology:
    return Topology(1, (0,), (), 0, {}, (), (0,))
