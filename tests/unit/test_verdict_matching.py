"""Matching where numbers are missing, shared or given to launches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossrank.reconstruct.match import match
from crossrank.reconstruct.windows import SURE, UNSURE, align_windows
from tests.support.events import collective, message, trace_of

SORTS = (("all_reduce", 64), ("all_reduce", 32), ("all_gather", 16), ("broadcast", 8))
PROGRAM = [SORTS[i] for i in np.random.default_rng(5).integers(0, 4, 60)]


def calls(rank: int, first: int, last: int, offset: int = 0, skip: int = -1) -> list[dict[str, Any]]:
    """The operations first..last-1 of a long program without repetition, as rank's buffer holds them."""
    rows = []
    for i in range(first, last):
        if i == skip:
            continue
        op, size = PROGRAM[i]
        rows.append(
            collective(
                rank, None, (100 * i + offset, 100 * i + 50 + offset), op=op, bytes=size, peer=0 if op == "broadcast" else None
            )
        )
    return rows


def members_by_time(trace, found) -> list[list[int]]:
    c = found.collectives
    return [trace.start_ns[c.member[c.ptr[k] : c.ptr[k + 1]]].tolist() for k in range(len(c))]


def test_windows_of_ring_buffers_are_aligned_by_content():
    trace = trace_of(*calls(0, 0, 30), *calls(1, 7, 33, offset=900_000), *calls(2, 12, 40, offset=-7_000_000))
    found = match(trace)
    for starts in members_by_time(trace, found):
        assert len({round((s % 900_000) if s >= 0 else s + 7_000_000, -2) // 100 for s in starts}) == 1, starts
    full = np.diff(found.collectives.ptr) == 3
    assert full.sum() == 30 - 12
    assert (found.collectives.confidence[full] == SURE).all()
    assert found.unmatched["by_content"] == len(trace)


def test_windows_with_a_hole_prove_nothing():
    trace = trace_of(*calls(0, 0, 30), *calls(1, 7, 33, skip=20))
    found = match(trace)
    assert not found.collectives.synchronising.any()
    assert found.unmatched["order_doubtful"] >= 25


def test_windows_of_a_loop_are_laid_where_the_stamps_are_nearest_and_prove_nothing():
    rows = [collective(0, None, (100 * i, 100 * i + 5)) for i in range(20)] + [
        collective(1, None, (100 * i + 3, 100 * i + 8)) for i in range(8, 20)
    ]
    trace = trace_of(*rows)
    found = match(trace)
    pairs = [s for s in members_by_time(trace, found) if len(s) == 2]
    assert all(b - a == 3 for a, b in pairs)
    assert not found.collectives.synchronising.any()


@pytest.mark.parametrize("seed", range(20))
def test_alignment_equals_trying_everything(seed: int):
    rng = np.random.default_rng(seed)
    program = rng.integers(0, 3, 40)
    cuts = [sorted(rng.choice(41, 2, replace=False).tolist()) for _ in range(3)]
    what = np.concatenate([program[a:b] for a, b in cuts])
    rank = np.concatenate([np.full(b - a, r) for r, (a, b) in enumerate(cuts)])
    start = np.concatenate([np.arange(a, b) * 10 + 1000 * r for r, (a, b) in enumerate(cuts)])
    number, confidence = align_windows(what, rank, start)
    longest = max(range(3), key=lambda r: (cuts[r][1] - cuts[r][0], -r))
    for r in range(3):
        mine = rank == r
        theirs = {int(n): int(w) for n, w in zip(number[rank == longest], what[rank == longest], strict=True)}
        overlap = [(theirs[int(n)], int(w)) for n, w in zip(number[mine], what[mine], strict=True) if int(n) in theirs]
        if confidence[mine].max(initial=0) >= UNSURE:
            assert all(a == b for a, b in overlap)
        true_shift = cuts[r][0] - cuts[longest][0]
        if confidence[mine].min(initial=1) == SURE:
            assert number[mine].tolist() == list(range(true_shift, true_shift + int(mine.sum())))


def test_operations_that_share_a_number_are_told_apart_by_their_place():
    rows = []
    for r in range(3):
        rows += [
            collective(r, 5, (10 * r, 100), op="all_reduce", bytes=8),
            collective(r, 5, (10 * r + 1, 101), op="all_gather", bytes=4),
        ]
    trace = trace_of(*rows)
    found = match(trace)
    assert found.collectives.synchronising.tolist() == [True, True]
    assert [trace.ops[o] for o in found.collectives.op] == ["all_reduce", "all_gather"]
    assert found.unmatched == {"coalesced": 6}


def test_a_group_that_one_rank_did_not_finish_is_not_told_apart():
    rows = [collective(r, 5, (10 * r + i, 100 + i)) for r in range(3) for i in range(2) if (r, i) != (2, 1)]
    found = match(trace_of(*rows))
    assert len(found.collectives) == 1
    assert found.unmatched == {"doubled": 2}


def test_launches_are_joined_to_their_operations_by_number():
    rows = [collective(0, q, (q, q + 1), lane="cpu", is_async=True) for q in (1, 2, 3)]
    rows += [collective(0, q, (10 + q, 19), lane="cuda") for q in (1, 3)]
    trace = trace_of(*rows)
    found = match(trace)
    joined = zip(trace.seq[found.launches.launch].tolist(), trace.seq[found.launches.operation].tolist(), strict=True)
    assert list(joined) == [(1, 1), (3, 3)]
    assert (trace.is_async[found.launches.launch] & ~trace.is_async[found.launches.operation]).all()
    assert found.unmatched["async_launch"] == 1


def test_launches_without_numbers_are_joined_in_order_where_both_are_equally_many():
    rows = [collective(0, None, (q, q + 1), lane="cpu", is_async=True) for q in range(3)]
    rows += [collective(0, None, (10 + q, 19), lane="cuda") for q in range(3)]
    rows += [collective(0, None, (q, q + 1), "other", lane="cpu", is_async=True) for q in range(3)]
    rows += [collective(0, None, (20, 22), "other", lane="cuda")]
    trace = trace_of(*rows)
    found = match(trace)
    assert (trace.start_ns[found.launches.operation] - trace.start_ns[found.launches.launch]).tolist() == [10, 10, 10]


def test_receives_launched_on_the_host_are_joined_too():
    trace = trace_of(
        message("recv", 1, 0, 4, (0, 1), lane="cpu", is_async=True),
        message("recv", 1, 0, 4, (5, 9), lane="cuda"),
        message("send", 0, 1, 4, (0, 1)),
    )
    found = match(trace)
    assert len(found.launches) == 1
    assert len(found.messages) == 1


def test_types_that_differ_bind_nobody():
    trace = trace_of(collective(0, 1, (0, 10), dtype="float32"), collective(1, 1, (0, 10), dtype="float16"))
    assert match(trace).unmatched == {"mismatched": 1}


def test_by_seq_is_certain():
    trace = trace_of(collective(0, 1, (0, 10)), collective(1, 1, (0, 10)))
    assert match(trace).collectives.confidence.tolist() == [1.0]


def tagged(kind: str, rank: int, peer: int, tag: int, start: int, seq: int | None = None) -> dict[str, Any]:
    return message(kind, rank, peer, seq, (start, start + 5), attrs=f'{{"note":"a,\\"tag\\":9","tag":{tag}}}')


@pytest.mark.parametrize("numbered", [False, True], ids=["without numbers", "numbered as called"])
def test_a_receive_takes_the_message_of_its_tag_whenever_it_was_sent(numbered: bool):
    sends = [tagged("send", 0, 1, t, 10 * i, i if numbered else None) for i, t in enumerate((1, 2, 2, 3))]
    recvs = [tagged("recv", 1, 0, t, 10 * i, i if numbered else None) for i, t in enumerate((2, 3, 1, 2))]
    trace = trace_of(*sends, *recvs)
    found = match(trace)
    pairs = zip(trace.start_ns[found.messages.send].tolist(), trace.start_ns[found.messages.recv].tolist(), strict=True)
    assert sorted(pairs) == [(0, 20), (10, 0), (20, 30), (30, 10)]
    assert trace.tag[found.messages.send].tolist() == trace.tag[found.messages.recv].tolist()
    assert found.unmatched == {"by_order": 8}


def test_tags_that_one_side_does_not_say_are_left_out():
    trace = trace_of(tagged("send", 0, 1, 4, 0), message("recv", 1, 0, None, (1, 9)))
    assert len(match(trace).messages) == 1


def test_a_tag_within_other_attributes_is_none():
    trace = trace_of(
        message("send", 0, 1, None, (0, 5), attrs='{"extra":{"tag":7}}'),
        message("recv", 1, 0, None, (0, 5), attrs='{"a":{"tag":1},"tag":8}'),
    )
    assert (trace.has_tag.tolist(), trace.tag.tolist()) == ([False, True], [0, 8])


def test_coalesced_messages_that_share_a_number_are_told_apart_by_their_place():
    rows = [message(kind, rank, 1 - rank, 5, (10 * i, 100)) for kind, rank in (("send", 0), ("recv", 1)) for i in range(3)]
    trace = trace_of(*rows)
    found = match(trace)
    assert trace.start_ns[found.messages.send].tolist() == trace.start_ns[found.messages.recv].tolist() == [0, 10, 20]
    assert found.unmatched == {"coalesced": 6}
    assert match(trace_of(*rows[:-1])).unmatched == {"doubled": 3}
