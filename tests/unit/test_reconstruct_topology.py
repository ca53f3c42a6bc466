"""Shape of a job from its communications: stages, missing ranks, kinds of groups, conflicts with what was posted."""

from crossrank.model.topology import MISSING_LISTED
from crossrank.reconstruct.match import match
from crossrank.reconstruct.topology import infer_topology
from tests.support.events import collective, message, trace_of


def topology_of(*rows, posted=None):
    trace = trace_of(*rows)
    return infer_topology(trace, match(trace), posted)


def pipeline_job(stages=3):
    """dp 2 x tp 2 x pp stages; rank = 4 * stage + 2 * dp + tp."""
    rows = []
    world = list(range(4 * stages))
    for r in world:
        stage, dp, tp = r // 4, r // 2 % 2, r % 2
        rows += [
            collective(r, 1, (0, 10), f"tp{stage}{dp}", group_ranks=[4 * stage + 2 * dp, 4 * stage + 2 * dp + 1]),
            collective(r, 1, (0, 10), f"dp{stage}{tp}", group_ranks=[4 * stage + tp, 4 * stage + 2 + tp]),
            collective(r, 1, (0, 10), "everyone", group_ranks=world),
        ]
        rows += [message("send", r, r + 4, 1, (0, 5))] if stage < stages - 1 else []
        rows += [message("recv", r, r - 4, 1, (0, 5))] if stage else []
        if stage in (0, stages - 1):  # tied embeddings: first and last stage without messages between them
            rows.append(collective(r, 1, (20, 30), f"emb{r % 4}", group_ranks=[r % 4, r % 4 + 4 * (stages - 1)]))
    return rows


def test_groups_that_cross_a_pipeline_do_not_join_its_stages():
    found = topology_of(*pipeline_job())
    assert found.stage == (0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2)
    assert found.stage_of([11, 0, 5]).tolist() == [2, 0, 1]
    kinds = {g.name: g.kind for g in found.groups}
    assert (kinds["tp00"], kinds["dp10"], kinds["everyone"], kinds["emb0"]) == ("tp", "dp", "world", "pp")


def test_posted_coordinates_go_first_when_every_rank_has_one():
    rows = [collective(r, 1, (0, 10)) for r in (0, 1)]
    assert topology_of(*rows).stage == (0, 0)
    posted = {"ranks": [{"rank": r, "coords": {"pp": r}} for r in (0, 1)]}
    assert topology_of(*rows, posted=posted).stage == (0, 1)
    assert topology_of(*rows, posted={"ranks": posted["ranks"][:1]}).stage == (0, 0)


def test_missing_ranks_are_those_the_world_has_and_nobody_saw():
    rows = [collective(r, 1, (0, 10), group_ranks=[0, 1, 2, 3]) for r in (0, 3)]
    assert topology_of(*rows).missing == (1, 2)
    assert topology_of(*rows, posted={"world_size": 6}).missing == (1, 2, 4, 5)
    assert topology_of({"rank": 2, "at": (0, 1)}).missing == (0, 1)


def test_a_hostile_rank_number_costs_no_memory():
    found = topology_of({"rank": 2**31 - 1, "at": (0, 1)})
    assert found.world_size == 2**31
    assert found.missing_count == 2**31 - 1
    assert len(found.missing) == MISSING_LISTED


def test_what_was_posted_and_seen_otherwise_is_said():
    posted = {
        "world_size": 2,
        "ranks": [{"rank": 0, "host": "elsewhere"}, {"rank": 1, "host": "h1"}, {"rank": 7, "host": "h7"}],
        "groups": [{"name": "g", "ranks": [0, 1]}, {"name": "unused", "ranks": [1, 0]}],
        "conflicts": ["told twice"],
    }
    found = topology_of(*(collective(r, 1, (0, 10), group_ranks=[0, 1, 2]) for r in (0, 1, 2)), posted=posted)
    assert len(found.conflicts) == 4
    assert found.conflicts[0] == "told twice"
    assert found.hosts == {0: "h0", 1: "h1", 2: "h2", 7: "h7"}
    assert [g.name for g in found.groups] == ["g", "unused"]


def test_an_empty_trace_has_a_shape_too():
    found = topology_of()
    assert (found.world_size, found.seen, found.missing, found.stage) == (0, (), (), ())
