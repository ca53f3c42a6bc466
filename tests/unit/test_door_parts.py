"""The parts of the doors by themselves: tokens, rates, the guard, budgets, the decode queue, the heartbeat. Nothing here speaks HTTP."""

import asyncio
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossrank.api.decode_queue import DecodeQueue
from crossrank.api.heartbeat import beat
from crossrank.api.inflight import Inflight
from crossrank.auth.guard import ANYBODY, Guard
from crossrank.auth.rates import Bucket, Rates
from crossrank.auth.tokens import TOKENS_FILE, create_token, read_tokens, revoke_token
from crossrank.counters import Counters
from crossrank.errors import Forbidden, NotFound, Overloaded, StoreUnavailable, Unauthenticated

SECOND = 10**9


class Clock:
    """A monotonic clock that goes where it is told."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


def guard_of(folder: Path, clock: Clock, *, always: bool = False, per_s: int = 1000) -> Guard:
    return Guard(folder, Rates(per_s, per_s), clock, always=always)


# --- tokens ---


def test_a_token_is_found_by_its_text_only(tmp_path):
    token, text = create_token(tmp_path, "read", "llm", 7)
    tokens = read_tokens(tmp_path)
    assert tokens.find(text) == token
    assert (token.scope, token.job, token.created_ns) == ("read", "llm", 7)
    for wrong in ("", text[:-1], text + "A", text.upper(), text.replace("crossrank", "crossrink"), f" {text}", "crossrank__"):
        assert tokens.find(wrong) is None, wrong


def test_tokens_differ_and_only_hashes_are_kept(tmp_path):
    texts = {create_token(tmp_path, "admin", None, 0)[1] for _ in range(20)}
    assert len(texts) == 20
    path = tmp_path / TOKENS_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    held = path.read_text()
    assert not any(text.split("_", 2)[2] in held for text in texts)
    assert sorted(p.name for p in tmp_path.iterdir()) == [TOKENS_FILE]


def test_tokens_made_at_the_same_time_are_all_kept(tmp_path):
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(create_token(tmp_path, "ingest", None, 0)[0].id)) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(read_tokens(tmp_path).by_id) == set(made)
    assert len(made) == 8


def test_revoking(tmp_path):
    token, text = create_token(tmp_path, "read", None, 0)
    revoke_token(tmp_path, token.id)
    assert read_tokens(tmp_path).find(text) is None
    with pytest.raises(NotFound):
        revoke_token(tmp_path, token.id)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"tokens": [{"id": 1}]}', '{"tokens": [{"id":"a","scope":"root","job":null,"created_ns":0,"sha256":""}]}'],
)
def test_a_damaged_file_lets_nobody_in_and_is_not_overwritten(tmp_path, clock, text):
    (tmp_path / TOKENS_FILE).write_text(text)
    with pytest.raises(StoreUnavailable):
        guard_of(tmp_path, clock)
    with pytest.raises(StoreUnavailable):
        create_token(tmp_path, "read", None, 0)
    assert (tmp_path / TOKENS_FILE).read_text() == text


# --- the guard ---


def test_without_a_file_anybody_may(tmp_path, clock):
    guard = guard_of(tmp_path, clock)
    assert guard.admit("", "admin") is ANYBODY
    assert not guard.uses_tokens


def test_beyond_this_machine_a_removed_file_closes_the_door(tmp_path, clock):
    _, text = create_token(tmp_path, "admin", None, 0)
    guard = guard_of(tmp_path, clock, always=True)
    assert guard.admit(f"Bearer {text}", "admin").scope == "admin"
    (tmp_path / TOKENS_FILE).unlink()
    clock.ns += SECOND
    with pytest.raises(Unauthenticated):
        guard.admit(f"Bearer {text}", "admin")
    assert guard.admit("", "open") is ANYBODY


def test_changes_count_within_a_second(tmp_path, clock):
    guard = guard_of(tmp_path, clock)
    token, text = create_token(tmp_path, "read", "llm", 0)
    clock.ns += SECOND
    with pytest.raises(Unauthenticated):
        guard.admit("", "read")
    assert guard.admit(f"bearer {text}", "read").job == "llm"
    with pytest.raises(Forbidden):
        guard.admit(f"Bearer {text}", "ingest")
    revoke_token(tmp_path, token.id)
    clock.ns += SECOND
    with pytest.raises(Unauthenticated):
        guard.admit(f"Bearer {text}", "read")


def test_a_file_that_breaks_while_running_closes_the_door_until_it_is_whole_again(tmp_path, clock):
    _, text = create_token(tmp_path, "read", None, 0)
    guard = guard_of(tmp_path, clock)
    whole = (tmp_path / TOKENS_FILE).read_text()
    (tmp_path / TOKENS_FILE).write_text(whole[:-20])
    for _ in range(2):
        clock.ns += SECOND
        with pytest.raises(StoreUnavailable):
            guard.admit(f"Bearer {text}", "read")
    (tmp_path / TOKENS_FILE).write_text(whole)
    clock.ns += SECOND
    assert guard.admit(f"Bearer {text}", "read").scope == "read"


# --- rates ---


@given(st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(0, 5000)), max_size=60))
def test_a_bucket_lets_through_its_rate_plus_one_burst(requests):
    bucket, now, taken, largest = Bucket(1000, 0), 0, 0, 0
    for pause_ns, amount in requests:
        now += pause_ns
        if bucket.wait_s(now) == 0:
            bucket.take(amount)
            taken += amount
            largest = max(largest, amount)
        assert taken <= 1000 * now / 1e9 + 2000 + largest + 1e-6


def test_who_waits_as_told_is_let_in(clock):
    rates = Rates(10**9, 1000)
    rates.charge("a", 0, events=4500)
    with pytest.raises(Overloaded) as told:
        rates.check("a", 0)
    assert told.value.detail == {"budget": "token_events", "retry_after_s": 3}
    rates.check("b", 0)
    rates.check("a", 3 * SECOND)


# --- bytes in work ---


@given(st.lists(st.integers(0, 400), min_size=1, max_size=30))
def test_the_budget_holds_and_everything_comes_back(sizes):
    inflight, holds = Inflight(1000), []
    for size in sizes:
        try:
            hold = inflight.open(size)
        except Overloaded:
            assert inflight.used_bytes + size > 1000
            continue
        try:
            hold.grow(size)
        except Overloaded:
            continue
        holds.append(hold)
        assert inflight.used_bytes == sum(h.held_bytes for h in holds)
        assert inflight.used_bytes <= 1000
    for hold in holds:
        with hold:
            pass
    assert inflight.used_bytes == 0


# --- the heartbeat ---


def test_a_stall_is_measured(monkeypatch):
    counters, clock, beats = Counters(), Clock(), [0]

    async def late(seconds: float) -> None:
        beats[0] += 1
        clock.ns += int(seconds * 1e9) + (70_000_000 if beats[0] == 3 else 1000)
        if beats[0] == 6:
            raise asyncio.CancelledError

    monkeypatch.setattr("crossrank.api.heartbeat.asyncio.sleep", late)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(beat(counters, clock))
    text = counters.exposition().decode()
    assert "crossrank_event_loop_stall_seconds 0.07\n" in text
    assert "crossrank_event_loop_stalls_total 1.0\n" in text


# --- the queue in front of the decoders ---


def test_what_would_wait_too_long_is_refused_and_an_empty_queue_takes_anything(clock):
    queue, go = DecodeQueue(1, SECOND, clock), threading.Event()

    def work() -> str:
        clock.ns += 400_000_000
        return "done"

    async def scenario() -> None:
        for _ in range(60):  # learns that a body of 1,000 bytes takes 0.4 s
            assert await queue.run(1000, work) == "done"
        held = [asyncio.create_task(queue.run(1000, go.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await queue.run(1000, work)
        go.set()
        await asyncio.gather(*held)
        assert await queue.run(10**9, work) == "done"

    asyncio.run(scenario())
    queue.close()


def test_a_fault_of_the_work_frees_its_place(clock):
    queue = DecodeQueue(1, 0, clock)

    def fail() -> None:
        clock.ns += SECOND
        raise NotFound("nothing")

    for _ in range(3):
        with pytest.raises(NotFound):
            queue.run_here(10, fail)
    queue.check()
    queue.close()
