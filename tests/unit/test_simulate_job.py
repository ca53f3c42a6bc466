"""A simulated job obeys physics in true time, repeats exactly, and differs between runs only by its faults."""

import numpy as np
import pyarrow.compute as pc
import pytest

from crossrank.errors import BadParameter
from crossrank.model.columns import EVENT_SCHEMA
from crossrank.simulate.config import ClockConfig, JobConfig
from crossrank.simulate.faults import (
    GcPause,
    Hang,
    LostEvents,
    MissingRank,
    SkippedCollective,
    SlowCompute,
    SlowLink,
    SlowLoader,
    WrongSize,
)
from crossrank.simulate.job import Simulated, simulate
from crossrank.simulate.program import pipeline_order
from crossrank.simulate.truth import true_cost

SMALL = JobConfig(dp=2, tp=2, pp=4, steps=4, ranks_per_host=4)
SHAPES = [
    SMALL,
    JobConfig(dp=4, tp=1, pp=1, steps=3),
    JobConfig(dp=1, tp=2, pp=3, steps=3),
    JobConfig(dp=2, tp=2, pp=2, steps=3, overlap=True),
]
MS = 1_000_000


def rows(job: Simulated) -> list[dict]:
    """Events with true times, as dictionaries; true_end_ns None where open."""
    out = job.events.to_pylist()
    for row, start, end in zip(out, job.true_start_ns.tolist(), job.true_end_ns.tolist(), strict=True):
        row["true_start_ns"], row["true_end_ns"] = start, end if row["end_ns"] is not None else None
    return out


def by_key(events: list[dict], *names: str) -> dict[tuple, list[dict]]:
    found: dict[tuple, list[dict]] = {}
    for event in events:
        found.setdefault(tuple(event[n] for n in names), []).append(event)
    return found


@pytest.mark.parametrize("config", SHAPES)
def test_no_member_of_a_collective_ends_before_every_member_started(config):
    events = [e for e in rows(simulate(config, seed=1)) if e["kind"] == "collective"]
    instances = by_key(events, "group", "seq")
    for members in instances.values():
        assert sorted(e["rank"] for e in members) == members[0]["group_ranks"]
        assert len({(e["op"], e["bytes"], e["step"]) for e in members}) == 1
        assert min(e["true_end_ns"] for e in members) > max(e["true_start_ns"] for e in members)


@pytest.mark.parametrize("config", [c for c in SHAPES if c.pp > 1])
def test_every_message_is_received_after_it_was_sent(config):
    events = rows(simulate(config, seed=2))
    sent = {(e["group"], e["rank"], e["peer"], e["seq"]): e for e in events if e["kind"] == "send"}
    received = {(e["group"], e["peer"], e["rank"], e["seq"]): e for e in events if e["kind"] == "recv"}
    assert len(sent) == 2 * (config.pp - 1) * config.dp * config.tp * config.microbatches * config.steps
    assert sent.keys() == received.keys()
    for key, recv in received.items():
        assert recv["true_end_ns"] > sent[key]["true_start_ns"]
        assert (recv["step"], recv["bytes"]) == (sent[key]["step"], sent[key]["bytes"])


@pytest.mark.parametrize("config", SHAPES)
def test_spans_of_a_lane_nest_and_lie_inside_their_parents(config):
    events = rows(simulate(config, seed=3))
    of_id = {(e["rank"], e["span_id"]): e for e in events}
    assert len(of_id) == len(events)
    for lane in by_key(events, "rank", "lane").values():
        stack: list[dict] = []
        for e in sorted(lane, key=lambda e: (e["true_start_ns"], -e["true_end_ns"])):
            while stack and stack[-1]["true_end_ns"] <= e["true_start_ns"]:
                stack.pop()
            assert not stack or e["true_end_ns"] <= stack[-1]["true_end_ns"]
            stack.append(e)
    for e in events:
        if e["parent_span_id"] is not None:
            parent = of_id[e["rank"], e["parent_span_id"]]
            assert parent["true_start_ns"] <= e["true_start_ns"]
            assert e["true_end_ns"] <= parent["true_end_ns"]
            assert parent["step"] == e["step"]


def test_counts_names_and_sequence_numbers():
    job = simulate(SMALL, seed=4)
    assert job.events.schema.equals(EVENT_SCHEMA, check_metadata=True)
    events = rows(job)
    assert {e["rank"] for e in events} == set(range(16))
    last_stage = [e["name"] for e in events if e["rank"] == 12 and e["step"] == 0 and e["kind"] != "collective"]
    assert last_stage == ["step", "dataloader", *["recv", "forward", "backward", "send"] * 4, "optimizer"]
    for (rank, group), calls in by_key([e for e in events if e["kind"] == "collective"], "rank", "group").items():
        assert [e["seq"] for e in calls] == list(range(1, len(calls) + 1)), (rank, group)
    assert len({e["trace_id"] for e in events}) == SMALL.steps


def test_pipeline_order_is_one_forward_one_backward():
    assert pipeline_order(0, 2, 3) == [
        ("forward", 0),
        ("forward", 1),
        ("backward", 0),
        ("forward", 2),
        ("backward", 1),
        ("backward", 2),
    ]
    assert pipeline_order(1, 2, 2) == [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]


def test_the_same_seed_gives_the_same_job_and_another_seed_another():
    one, two, other = (simulate(SMALL, [SlowLoader(1)], seed=s) for s in (5, 5, 6))
    assert one.events.equals(two.events)
    assert not one.events.equals(other.events)
    longer = simulate(JobConfig(dp=2, tp=2, pp=4, steps=6, ranks_per_host=4), [SlowLoader(1)], seed=5)
    assert np.array_equal(longer.step_end_ns[:4], one.step_end_ns)


def test_a_fault_changes_no_noise_and_nothing_before_it():
    healthy, slow = simulate(SMALL, seed=7), simulate(SMALL, [SlowCompute(5, "forward", (2, 2), extra_ns=30 * MS)], seed=7)
    assert np.array_equal(healthy.step_end_ns[:2], slow.step_end_ns[:2])
    assert healthy.events["span_id"].equals(slow.events["span_id"])
    length = [(j.true_end_ns - j.true_start_ns) for j in (healthy, slow)]
    loads = pc.equal(healthy.events["name"].cast("string"), "dataloader").to_numpy()
    assert np.array_equal(length[0][loads], length[1][loads])
    rank, name, step = (healthy.events[c].cast(t).to_numpy() for c, t in (("rank", "int32"), ("name", "string"), ("step", "int64")))
    forward = (rank == 5) & (name == "forward") & (step == 2)
    host = healthy.events["rank"].to_numpy() // 4
    since = healthy.true_start_ns - SMALL.start_ns
    assert np.array_equal(healthy.clocks.read(host, since), slow.clocks.read(host, since))
    # The rank itself is 30 ms slower in each forward; its tensor-parallel peer then waits less or more for it, never it.
    grown = (length[1] - length[0])[forward]
    assert np.all((grown > 29 * MS) & (grown < 31 * MS))


def test_raw_stamps_are_what_the_wrong_clock_shows():
    config = JobConfig(dp=2, tp=2, pp=4, steps=4, ranks_per_host=4, clocks=ClockConfig(step_fraction=0.5, slew_fraction=0.5))
    job = simulate(config, seed=8)
    host = job.events["rank"].to_numpy() // 4
    assert np.array_equal(job.events["start_ns"].to_numpy(), job.clocks.read(host, job.true_start_ns - config.start_ns))
    assert np.array_equal(job.events["end_ns"].to_numpy(), job.clocks.read(host, job.true_end_ns - config.start_ns))
    assert job.true_start_ns.min() < config.start_ns + MS
    wrong = job.events["start_ns"].to_numpy() - job.true_start_ns
    for h, told in enumerate(job.truth["clocks"]):
        here = host == h
        elapsed = job.true_start_ns[here] - config.start_ns
        expected = told["offset_ns"] + told["drift_ppm"] * 1e-6 * elapsed
        for step in told["steps"]:
            expected = expected + np.where(job.true_start_ns[here] >= step["true_ns"], step["size_ns"], 0)
        assert np.abs(wrong[here] - expected).max() < 1.2 * MS  # wander and at most 500 ppm for 2 s
    assert sum(bool(c["steps"]) for c in job.truth["clocks"]) == 2


@pytest.mark.parametrize(
    ("fault", "low_ms", "high_ms"),
    [
        (SlowCompute(5, "forward", (1, 2), extra_ns=30 * MS), 120, 240),  # pipeline bubbles hide a part
        (SlowCompute(5, "optimizer", (1, 2), extra_ns=30 * MS), 28, 62),
        (SlowLoader(3, (1, 2), extra_ns=40 * MS), 60, 82),
        (SlowLink(group="dp1", steps=(1, 1), extra_ns=10 * MS), 38, 41),
        (SlowLink(src=0, dst=4, steps=(1, 1), extra_ns=200 * MS), 150, 210),
        (GcPause(2, (1, 2), probability=1.0, pause_ns=200 * MS), 200, 401),
        (WrongSize(2, 1), 0, 0),
        (MissingRank(2), 0, 0),
    ],
)
def test_the_true_cost_is_what_the_job_would_be_shorter_by(fault, low_ms, high_ms):
    cost = true_cost(SMALL, [fault], seed=9)
    assert low_ms * MS <= cost.fault_ns[0] <= high_ms * MS
    assert cost.total_ns == cost.fault_ns[0]
    with_it, without = simulate(SMALL, [fault], seed=9), simulate(SMALL, seed=9)
    ends = with_it.step_end_ns[-1] - without.step_end_ns[-1] - with_it.step_start_ns[0] + without.step_start_ns[0]
    assert ends == cost.total_ns
    assert np.array_equal(cost.step_ns, with_it.step_end_ns - with_it.step_start_ns)


@pytest.mark.parametrize("where", ["dataloader", "forward", "backward", "gradients", "grad_norm", "optimizer"])
def test_a_hang_leaves_spans_open_and_no_later_step(where):
    job = simulate(SMALL, [Hang(5, 2, where)], seed=10)
    events = rows(job)
    assert len(job.step_end_ns) == 2
    assert true_cost(SMALL, [Hang(5, 2, where)], seed=10).total_ns is None
    if where != "optimizer":
        assert max(e["step"] for e in events) == 2
    still_open = [e for e in events if e["end_ns"] is None]
    # For a hang in a span that span is open on the culprit; before a collective only the step is, as it never entered.
    mine = {e["name"] for e in still_open if e["rank"] == 5}
    assert mine == {"step"} | ({where} if where not in ("gradients", "grad_norm") else set())
    assert {e["rank"] for e in still_open if e["kind"] in ("collective", "recv")} - {5}


def test_a_skipped_collective_puts_the_rank_one_behind_and_stops_the_job():
    job = simulate(SMALL, [SkippedCollective(5, 2, "dp", 1)], seed=11)
    calls = by_key([e for e in rows(job) if e["group"] == "dp3"], "rank")
    healthy, odd = calls[7,], calls[5,]
    assert odd[0]["group_ranks"] == [5, 7]
    assert [e["seq"] for e in healthy] == list(range(1, 11))
    assert [e["seq"] for e in odd] == list(range(1, 11))  # the last one is its call of the next bucket
    assert healthy[-1]["end_ns"] is None
    assert odd[-1]["end_ns"] is None
    assert len(job.step_end_ns) == 2


def test_wrong_sizes_missing_ranks_and_losses_show_in_the_events_only():
    job = simulate(SMALL, [WrongSize(5, 2, "world", 0, 8), MissingRank(3), LostEvents(0.1)], seed=12)
    whole = simulate(SMALL, seed=12)
    world = [e for e in rows(job) if e["group"] == "world" and e["step"] == 2]
    assert {e["bytes"] for e in world if e["rank"] != 5} == {4}
    assert {e["bytes"] for e in world if e["rank"] == 5} <= {8}
    assert 3 not in {e["rank"] for e in rows(job)}
    present = whole.events.num_rows * 15 / 16
    assert 0.87 * present < job.events.num_rows < 0.93 * present
    times = dict(
        zip(
            zip(whole.events["rank"].to_pylist(), whole.events["span_id"].to_pylist(), strict=True),
            whole.true_start_ns,
            strict=True,
        )
    )
    for event in rows(job):
        assert times[event["rank"], event["span_id"]] == event["true_start_ns"]


def test_truth_and_topology_say_what_was_done():
    fault = SlowCompute(2, "forward", (1, 2), extra_ns=30 * MS)
    job = simulate(SMALL, [fault], seed=13)
    (told,) = job.truth["faults"]
    assert told["fault"] == "slow_compute"
    assert told["expected"] == {"class": "straggler", "rank": 2, "cause": {"kind": "compute", "name": "forward"}}
    assert job.topology["world_size"] == 16
    assert job.topology["ranks"][6] == {"rank": 6, "host": "host1", "clock": "host1", "coords": {"dp": 1, "tp": 0, "pp": 1}}
    members = {g["name"]: g["ranks"] for g in job.topology["groups"]}
    assert members["pp3"] == [3, 7, 11, 15]
    for event in rows(job):
        assert event["group"] is None or event["group_ranks"] == members[event["group"]]


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: JobConfig(dp=0), "dp"),
        (lambda: simulate(SMALL, [SlowLoader(16)], seed=1), "rank"),
        (lambda: simulate(SMALL, [SlowLink(group="dp9")], seed=1), "group"),
        (lambda: simulate(SMALL, [SlowLink(src=0, dst=1)], seed=1), "src"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(make, field):
    with pytest.raises(BadParameter) as caught:
        make()
    assert caught.value.detail["field"] == field


def test_a_thousand_ranks_in_any_layout():
    config = JobConfig(dp=16, tp=8, pp=8, steps=2, microbatches=2)
    job = simulate(config, seed=14)
    per_rank = dict(zip(*np.unique(job.events["rank"].to_numpy(), return_counts=True), strict=True))
    assert set(per_rank) == set(range(1024))
    # step, loader, optimizer, 4 gradients, norm; 4 phases with 2 all-reduces each; messages to one or two neighbours
    assert {per_rank[0], per_rank[1023]} == {2 * (8 + 4 * 3 + 4)}
    assert per_rank[512] == 2 * (8 + 4 * 3 + 8)
    world = job.events.filter(pc.equal(job.events["group"].cast("string"), "world"))
    assert world["group_ranks"].null_count == 1024  # told in the first step only


@pytest.mark.parametrize(("pp", "microbatches"), [(1, 4), (2, 4), (4, 4), (4, 8), (8, 3)])
def test_without_noise_a_step_has_the_textbook_length(pp, microbatches):
    quiet = {"compute_noise": 0.0, "hiccup_probability": 0.0, "jitter_median_ns": 0, "tail_probability": 0.0, "gap_ns": 0}
    config = JobConfig(dp=1, tp=1, pp=pp, steps=3, microbatches=microbatches, latency_ns=0, activation_bytes=0, **quiet)
    job = simulate(config, seed=15)
    pipeline = (microbatches + pp - 1) * (config.forward_ns + config.backward_ns)  # 1F1B: the bubble is pp - 1 microbatches
    expected = config.loader_ns + pipeline + config.optimizer_ns
    assert np.abs((job.step_end_ns - job.step_start_ns)[1:] / expected - 1).max() < 0.001
