"""Large jobs that nobody asks about are not derived in the background; the next question about one waits for its derivation."""

from __future__ import annotations

from types import SimpleNamespace

from crossrank.counters import Counters
from crossrank.limits import Limits
from crossrank.query import deriver as module
from crossrank.query.deriver import ASKED_NS, Deriver

MANY, FEW = 100, 10


class Store:
    """As much of a store as the deriver asks, with one job that grows when told to."""

    def __init__(self) -> None:
        self.events = FEW
        self.topology = lambda _: None

    def snapshot(self, job):
        return SimpleNamespace(job=job, version=self.events, attempts=(0,), events=lambda where: SimpleNamespace(num_rows=1))

    def jobs(self):
        return [SimpleNamespace(job="j", version=self.events, events=self.events, last_received_ns=0)]

    def tallies(self, _):
        return {"accepted": self.events}


def test_a_large_job_is_derived_when_asked_for(monkeypatch):
    monkeypatch.setattr(module, "derive", lambda *_, version, **__: SimpleNamespace(version=version))
    now = [1]
    store = Store()
    deriver = Deriver(store, Limits(derive_unasked_events=50), Counters(), lambda: now[0])
    assert deriver.latest("j")[1].version == FEW
    now[0] += ASKED_NS
    assert not deriver._is_left_alone("j", FEW)
    store.events = MANY
    assert deriver._is_left_alone("j", MANY)
    assert deriver.latest("j")[1].version == MANY  # not the old answer
    assert not deriver._is_left_alone("j", MANY)
    now[0] += ASKED_NS - 1
    assert not deriver._is_left_alone("j", MANY)
    now[0] += 1
    assert deriver._is_left_alone("j", MANY)
    deriver.known("j")
    assert not deriver._is_left_alone("j", MANY)
