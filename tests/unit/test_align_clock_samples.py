from __future__ import annotations

import json

import numpy as np

from crossrank.align.fit import fit_clocks
from crossrank.model.clock_samples import SERVICE_CLOCK
from crossrank.reconstruct.match import match
from tests.support.events import trace_of

EPOCH_NS = 1_780_272_000_000_000_000
AHEAD_NS = {0: 0, 1: 40_000_000_000, 2: -3_000_000}
SERVICE_AHEAD_NS = 777_000


def sample(rank: int, at: int, forth: int, back: int, **wrong: object) -> dict[str, object]:
    sent = EPOCH_NS + at + AHEAD_NS[rank]
    received = EPOCH_NS + at + forth + SERVICE_AHEAD_NS
    stamps = {"sent_ns": sent, "received_ns": received, "replied_ns": received + 1000, "got_ns": sent + forth + 1000 + back}
    return {
        "rank": rank, "host": f"h{rank}", "kind": "metric", "name": "clock.sample",
        "at": (sent, sent), "attrs": json.dumps({**stamps, **wrong}, sort_keys=True, separators=(",", ":")),
    }  # fmt: skip


def work(rank: int) -> list[dict[str, object]]:
    return [
        {"rank": rank, "host": f"h{rank}", "at": tuple(EPOCH_NS + AHEAD_NS[rank] + i * 10_000_000 + x for x in (0, 9_000_000))}
        for i in range(1000)
    ]


def sampled(rank: int, seed: int, every_ns: int = 1_000_000_000) -> list[dict[str, object]]:
    rng = np.random.default_rng(seed)
    ways = 30_000 + rng.exponential(10_000, (10, 2)).astype(int)
    return [sample(rank, 7_000_000 + i * every_ns + rank, *map(int, ways[i])) for i in range(10)]


def test_samples_alone_join_hosts_that_exchange_nothing():
    trace = trace_of(*work(0), *work(1), *sampled(0, 1), *sampled(1, 2))
    assert trace.domains == ("h0", "h1", SERVICE_CLOCK)
    assert len(trace.samples) == 20
    clocks = fit_clocks(trace, match(trace))
    assert clocks.component.tolist() == [0, 0, 0]
    reference = int(clocks.reference[0])
    assert trace.domains[reference] != SERVICE_CLOCK
    truth = trace.start_ns - np.array([AHEAD_NS[0], AHEAD_NS[1]])[trace.domain] + AHEAD_NS[reference]
    error = np.abs(clocks.to_reference(trace.domain, trace.start_ns) - truth)
    assert error.max() <= 10_000
    assert error.max() <= clocks.pairs.between_ns[0, 1] < 200_000


def test_a_host_without_samples_stays_alone():
    trace = trace_of(*work(0), *work(1), *work(2), *sampled(0, 1), *sampled(1, 2))
    clocks = fit_clocks(trace, match(trace))
    assert clocks.component.tolist() == [0, 0, 1, 0]
    assert np.isfinite(clocks.sigma_ns).all()
    assert clocks.epochs[2][0].offset_ns.tolist() == [0] * len(clocks.epochs[2][0].offset_ns)


def test_the_service_clock_is_drawn_against_the_reference():
    trace = trace_of(*work(0), *sampled(0, 3))
    clocks = fit_clocks(trace, match(trace))
    assert clocks.reference.tolist() == [0]
    shown = np.array([EPOCH_NS + 5_000_000_000 + SERVICE_AHEAD_NS])
    mapped = clocks.to_reference(np.array([1], np.int32), shown)
    assert abs(int(mapped[0]) - (EPOCH_NS + 5_000_000_000)) <= 10_000


def test_samples_that_cannot_be_are_counted_and_left_out():
    bad = [
        sample(0, 1_000_000, 30_000, 30_000, got_ns=5),
        sample(0, 2_000_000, 30_000, 30_000, sent_ns="soon"),
        sample(0, 3_000_000, 30_000, 30_000, replied_ns=EPOCH_NS),
        sample(0, 4_000_000, 20_000_000_000, 30_000),
        sample(0, 5_000_000, 30_000, 30_000, received_ns=2**64),
    ]
    trace = trace_of(*work(0), *bad)
    assert trace.excluded == {"clock_sample_unusable": 5}
    assert len(trace.samples) == 0
    assert trace.domains == ("h0",)


def test_a_metric_of_that_name_without_stamps_breaks_nothing():
    trace = trace_of({"rank": 0, "host": "h0", "kind": "metric", "name": "clock.sample", "at": (EPOCH_NS, EPOCH_NS)})
    assert trace.excluded == {"clock_sample_unusable": 1}
    clocks = fit_clocks(trace, match(trace))
    assert clocks.component.tolist() == [0]


def test_a_parent_on_another_host_bounds_its_child_from_one_side():
    late = 5_000_000  # the child's clock is behind: it seems to begin before its parent
    parent = {"rank": 0, "host": "h0", "at": (EPOCH_NS, EPOCH_NS + 10_000_000), "span_id": 1}
    child = {
        "rank": 1, "host": "h1", "at": (EPOCH_NS - late, EPOCH_NS), "span_id": 2, "parent_span_id": (1).to_bytes(8, "big"),
    }  # fmt: skip
    trace = trace_of(parent, child)
    clocks = fit_clocks(trace, match(trace))
    assert clocks.component.tolist() == [0, 1]  # one direction alone joins nothing
    assert np.isfinite(clocks.sigma_ns).all()


def test_links_both_ways_join_two_clocks_and_hold_the_truth_between_them():
    behind = 5_000_000  # of h1's clock

    def there(i: int, at_ns: int) -> list[dict]:
        asked = {"rank": 0, "host": "h0", "at": (at_ns, at_ns + 50_000), "span_id": 3 * i + 1}
        did = {
            "rank": 1, "host": "h1", "at": (at_ns + 20_000 - behind, at_ns + 90_000 - behind), "span_id": 3 * i + 2,
            "links": [(3 * i + 1).to_bytes(8, "big")],
        }  # fmt: skip
        got = {
            "rank": 0, "host": "h0", "at": (at_ns + 60_000, at_ns + 120_000), "span_id": 3 * i + 3,
            "links": [(3 * i + 2).to_bytes(8, "big")],
        }  # fmt: skip
        return [asked, did, got]

    trace = trace_of(*(row for i in range(50) for row in there(i, EPOCH_NS + i * 20_000_000)))
    clocks = fit_clocks(trace, match(trace))
    assert clocks.component.tolist() == [0, 0]
    at = np.array([EPOCH_NS + 500_000_000 - behind])
    mapped = int(clocks.to_reference(np.array([1], np.int32), at)[0])
    assert abs(mapped - (EPOCH_NS + 500_000_000)) <= 100_000  # asked -> did -> got leaves 90 us one way, 100 us the other
