"""Random bit flips in logs and segments: a log gives exactly its whole records, a segment never a wrong answer."""

import numpy as np
import pytest

from crossrank.store.wal_format import HEADER_BYTES, Damaged, Logged, read_salt, scan
from tests.support.campaigns import record
from tests.support.store_posts import open_store, put, row, spans


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """The bytes of a log file with records of many sizes, and where each of them ends."""
    folder = tmp_path_factory.mktemp("log") / "data"
    store = open_store(folder)
    for k in range(1, 25):
        put(store, [row(100 * k + i, attrs=f'{{"x":"{"y" * k * i}"}}') for i in range(k % 5 + 1)], k)
    whole = max((folder / "wal").iterdir()).read_bytes()
    store.close()
    records = list(scan(whole, read_salt(whole[:HEADER_BYTES], "log")))
    assert len(records) == 24
    assert all(isinstance(r, Logged) for r in records)
    return whole, records


def log_flips(log, count, seed):
    """Each flip costs exactly the record it hits; all others are read, byte for byte, and the damage is noticed."""
    whole, records = log
    print("seed", seed)
    ends = [HEADER_BYTES, *(r.end for r in records)]
    for bit in np.random.default_rng(seed).integers(0, 8 * len(whole), count).tolist():
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        salt = read_salt(bytes(flipped[:HEADER_BYTES]), "log")
        assert salt is not None, "one flipped bit leaves one copy of the header"
        found = list(scan(bytes(flipped), salt))
        hit = None if bit // 8 < HEADER_BYTES else int(np.searchsorted(ends, bit // 8, side="right")) - 1
        assert [r.post for r in found if isinstance(r, Logged)] == [r.post for k, r in enumerate(records) if k != hit], bit
        assert any(isinstance(r, Damaged) for r in found) == (hit is not None), bit


def test_flips_in_a_log_cost_the_records_they_hit(log):
    log_flips(log, 400, 1)


@pytest.mark.long
def test_ten_thousand_flips_in_a_log_cost_the_records_they_hit(log):
    log_flips(log, 10_000, 2)
    record("bit flips in a log", "10,000 flips, all seen, 0 whole records missing")


def test_a_log_cut_anywhere_in_its_last_three_records_gives_the_whole_ones(log):
    whole, records = log
    salt = read_salt(whole[:HEADER_BYTES], "log")
    for size in range(records[-4].end, len(whole)):
        found = list(scan(whole[:size], salt))
        kept = [r.post for r in records if r.end <= size]
        assert [r.post for r in found if isinstance(r, Logged)] == kept
        assert all(r.at_end for r in found if isinstance(r, Damaged))


def segment_flips(folder, count, seed):
    """Whatever bit of a segment is flipped, before or after it was first read, the answer is right or says that it is not whole."""
    print("seed", seed)
    store = open_store(folder)
    put(store, [row(i, 10 * i, 10 * i + 5, rank=i % 3, trace_id=f"{i // 4 + 1:032x}") for i in range(1, 60)])
    store.seal()
    put(store, [row(100), row(1, 10, 15, rank=1, name="newer")], 2)
    store.seal()
    segment = store._jobs.segments()[0]
    whole, right = segment.path.read_bytes(), spans(store.snapshot("j").events())
    without = [s for s in right if s[1] in {1, 100}]
    for number, bit in enumerate(np.random.default_rng(seed).integers(0, 8 * len(whole), count).tolist()):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << (bit % 8)
        segment.path.write_bytes(flipped)
        segment.fault = None
        if number % 2:
            segment._metadata = None  # as after a restart: the whole file's checksum is verified
        snapshot = store.snapshot("j")
        answer = spans(snapshot.events())
        if number % 2 or snapshot.partial:
            assert (answer, bool(snapshot.partial)) == (without, True), bit
        else:
            assert answer == right, bit
        segment.path.write_bytes(whole)
        segment.fault, segment._metadata = None, None
        assert len(store.snapshot("j").events(["span_id"])) == len(right)
    store.close()


def test_flips_in_a_segment_never_give_a_wrong_answer(tmp_path):
    segment_flips(tmp_path / "data", 60, 3)


@pytest.mark.long
def test_a_thousand_flips_in_a_segment_never_give_a_wrong_answer(tmp_path):
    segment_flips(tmp_path / "data", 1000, 4)
    record("bit flips in a segment, before and after its first use", "1,000 flips, 0 wrong answers")
