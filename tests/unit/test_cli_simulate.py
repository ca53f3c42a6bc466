"""`crossrank simulate`: its --fault option by example, its files, and its posts."""

from __future__ import annotations

import json

import pytest

from crossrank import errors
from crossrank.commands.fault_option import KINDS, parse_fault
from crossrank.commands.line_batches import find_files
from crossrank.commands.simulate import run_simulate
from crossrank.simulate import faults
from tests.support.stub_service import Reply, receipt, stub_service

SMALL = {"job": "j", "seed": 3, "dp": 2, "tp": 1, "pp": 2, "steps": 3}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "slow:rank=5,phase=forward,steps=10-20,extra=30ms",
            faults.SlowCompute(rank=5, phase="forward", steps=(10, 20), extra_ns=30_000_000),
        ),
        ("slow:rank=5,factor=1.5", faults.SlowCompute(rank=5, factor=1.5)),
        ("loader: rank=3, steps=7, extra=1.5s", faults.SlowLoader(rank=3, steps=(7, 7), extra_ns=1_500_000_000)),
        ("link:src=0,dst=16,factor=4", faults.SlowLink(src=0, dst=16, factor=4.0)),
        ("link:group=dp0,extra=200us", faults.SlowLink(group="dp0", extra_ns=200_000)),
        ("pause:rank=1,probability=0.5,pause=20ms", faults.GcPause(rank=1, probability=0.5, pause_ns=20_000_000)),
        ("hang:rank=2,step=9,where=forward", faults.Hang(rank=2, step=9, where="forward")),
        ("skip:rank=2,step=9,scope=tp", faults.SkippedCollective(rank=2, step=9, scope="tp")),
        ("size:rank=2,step=9,size_bytes=64", faults.WrongSize(rank=2, step=9, size_bytes=64)),
        ("missing:rank=7", faults.MissingRank(rank=7)),
        ("lost:fraction=0.01", faults.LostEvents(fraction=0.01)),
    ],
)
def test_faults_by_example(text, expected):
    assert parse_fault(text) == expected


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("slwo:rank=5", "unknown kind 'slwo'; one of slow, loader"),
        ("slow", "needs rank=…"),
        ("slow:rank=5,fase=forward", "'fase=forward' is not one of rank=…, phase=…"),
        ("slow:rank=five", "rank=five should be a number"),
        ("slow:rank=5,extra=30", "extra=30 should be a duration such as 30ms"),
        ("slow:rank=5,steps=9-3", "steps=9-3 should be a step or a range"),
        ("slow:rank=5,phase=lunch", "phase=lunch should be one of forward, backward, optimizer"),
        ("missing:7", "'7' is not one of rank=…"),
    ],
)
def test_a_wrong_fault_is_told_what_it_could_be(text, complaint):
    with pytest.raises(errors.BadParameter) as found:
        parse_fault(text)
    assert complaint in found.value.message


def test_every_fault_of_the_simulator_has_a_name():
    assert set(KINDS.values()) == set(faults.Fault.__args__)


def test_files_can_be_sent_and_the_truth_lies_beside(tmp_path, capsys):
    run_simulate(output=tmp_path / "out", url=None, faults=["slow:rank=1,extra=30ms", "missing:rank=3"], **SMALL)
    assert [p.name for p in find_files([str(tmp_path / "out")])] == [f"rank{r}.ndjson.gz" for r in range(4)]
    truth = json.loads((tmp_path / "out" / "truth.json").read_text())
    assert truth["faults"][0]["expected"] == {"class": "straggler", "rank": 1, "cause": {"kind": "compute", "name": "forward"}}
    assert truth["cost_ns"][0] > 3 * 30_000_000
    assert "simulated 4 ranks on 1 host, 3 steps, seed 3" in capsys.readouterr().out


def test_posts_carry_every_event_and_the_topology(capsys):
    with stub_service(lambda r: Reply({}) if r.path.endswith("/topology") else receipt(r.body.count(b"\n"))) as stub:
        run_simulate(output=None, url=stub.url, faults=[], **SMALL)
    topology, *posts = stub.posted()
    assert json.loads(topology.body)["world_size"] == 4
    ids = [(e["rank"], e["span_id"]) for p in posts for e in map(json.loads, p.body.splitlines())]
    assert len(ids) == len(set(ids)) > 100
    assert f"posted {len(ids)} events" in capsys.readouterr().out


def test_somewhere_must_be_said():
    with pytest.raises(errors.BadParameter, match="-o DIR"):
        run_simulate(output=None, url=None, faults=[], **SMALL)
