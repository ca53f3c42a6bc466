"""`crossrank send`: batches of whole lines, retries, resuming, and the summary, against a service whose answers we write."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest
import zstandard

from crossrank import errors
from crossrank.commands import poster as poster_module
from crossrank.commands import send as send_module
from crossrank.commands.line_batches import Batch, find_files, read_batches
from crossrank.commands.poster import Poster
from crossrank.commands.resume import Memory, Progress
from crossrank.commands.send import Upload, send_files
from crossrank.commands.send_text import summary
from tests.support.stub_service import Reply, Request, fault, receipt, stub_service


def lines_of(count: int, width: int = 60) -> bytes:
    return b"".join(json.dumps({"i": i, "pad": "x" * width}).encode() + b"\n" for i in range(count))


def knows_nothing(request: Request) -> Reply | None:
    """The stub's answer to the question that comes first: an empty service."""
    return fault(404, "not_found", "no such job") if request.method == "GET" else None


def accept_all(request: Request) -> Reply:
    if request.method == "GET":
        return Reply({"job": "j"})
    return receipt(request.body.count(b"\n"))


def upload(files, url, tmp_path: Path | None = None, *, restart=False, patience_s=30.0, workers=3) -> Upload:
    memory = Memory(None if tmp_path is None else tmp_path / "cache")
    return send_files(
        files, url=url, job="j", workers=workers, memory=memory, restart=restart, patience_s=patience_s, on_progress=lambda *_: None
    )


# --- reading ---


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.ZstdCompressor().compress], ids=["plain", "gzip", "zstd"])
def test_batches_tile_the_text_at_line_ends(tmp_path, pack):
    text = lines_of(1000)
    path = tmp_path / "rank0.bin"  # told apart by content, not by name
    path.write_bytes(pack(text))
    batches = list(read_batches(path, batch_bytes=5000, batch_lines=40))
    assert b"".join(b.text for b in batches) == text
    assert all(b.text.endswith(b"\n") and b.lines == b.text.count(b"\n") <= 40 for b in batches)
    assert [b.start for b in batches[1:]] == [b.end for b in batches[:-1]]
    assert [b.first_line for b in batches[1:]] == [b.first_line + b.lines for b in batches[:-1]]
    again = list(read_batches(path, batches[3].end, batches[3].first_line + batches[3].lines - 1, batch_bytes=5000, batch_lines=40))
    assert b"".join(b.text for b in again) == text[batches[3].end :]
    assert again[0].first_line == batches[4].first_line


def test_concatenated_members_and_a_last_line_without_newline(tmp_path):
    path = tmp_path / "two.gz"
    path.write_bytes(gzip.compress(b'{"a":1}\n') + gzip.compress(b'{"a":2}'))
    (batch,) = read_batches(path)
    assert batch.text == b'{"a":1}\n{"a":2}'
    assert batch.lines == 2


def test_an_empty_file_has_no_batches(tmp_path):
    for name, content in (("a", b""), ("b", gzip.compress(b"")), ("c", zstandard.ZstdCompressor().compress(b""))):
        (tmp_path / name).write_bytes(content)
        assert list(read_batches(tmp_path / name)) == []


def test_a_truncated_file_gives_what_it_has_and_then_says_so(tmp_path):
    path = tmp_path / "cut.gz"
    packed = gzip.compress(lines_of(50_000), compresslevel=1)
    path.write_bytes(packed[: len(packed) // 2])
    got = []
    with pytest.raises(errors.UndecodableBody, match=r"cut\.gz: cannot be read on from byte"):
        got.extend(read_batches(path, batch_bytes=10_000))
    assert len(got) > 10


def test_find_files_takes_files_folders_and_patterns_once_each(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("a.ndjson", "b.jsonl.gz", "deep/c.ndjson.zst", "truth.txt"):
        (tmp_path / name).write_bytes(b"")
    found = find_files([str(tmp_path / "a.ndjson"), str(tmp_path), str(tmp_path / "*.gz")])
    assert [p.name for p in found] == ["a.ndjson", "b.jsonl.gz", "c.ndjson.zst"]
    with pytest.raises(errors.BadParameter, match="no such file"):
        find_files([str(tmp_path / "nothing")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.BadParameter, match="no event files"):
        find_files([str(tmp_path / "empty")])


# --- sending ---


def test_every_line_arrives_once_under_the_job(tmp_path):
    texts = {f"rank{r}.ndjson": lines_of(3000 + r) for r in range(4)}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    (tmp_path / "rank4.ndjson").write_bytes(b"")
    with stub_service(accept_all) as stub:
        done = upload(find_files([str(tmp_path)]), stub.url)
    assert (done.files, done.tally.accepted, done.failed) == (5, sum(3000 + r for r in range(4)), [])
    sent = Counter(line for r in stub.posted() for line in r.body.splitlines())
    assert sent == Counter(line for text in texts.values() for line in text.splitlines())
    assert {r.headers["x-crossrank-job"] for r in stub.posted()} == {"j"}
    assert {r.headers["content-type"] for r in stub.posted()} == {"application/x-ndjson"}


def test_overload_is_retried_after_the_pause_asked_for(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_bytes(lines_of(3))
    answers = iter(
        [fault(503, "overloaded", "budget used up", {"Retry-After": "3"}), fault(503, "overloaded", "again"), receipt(3)]
    )
    pauses: list[float] = []
    with stub_service(lambda r: next(answers)) as stub, httpx.Client(base_url=stub.url) as client:
        poster = Poster(client, stub.url, None, 60.0, pause=lambda s: bool(pauses.append(s)))
        (batch,) = read_batches(path)
        tally = poster.post(batch)
    assert (tally.accepted, tally.retries) == (3, 2)
    assert pauses[0] == 3.0
    assert 0 < pauses[1] <= 2 * poster_module.FIRST_PAUSE_S


def test_patience_ends_with_the_last_fault(tmp_path):
    batch = Batch(tmp_path / "a", 1, 1, 0, 3, b"{}\n")
    with (
        stub_service(lambda r: fault(503, "store_unavailable", "the disk is full")) as stub,
        httpx.Client(base_url=stub.url) as client,
    ):
        poster = Poster(client, stub.url, None, 0.0, pause=lambda s: False)
        with pytest.raises(errors.StoreUnavailable, match=r"the disk is full \(gave up after"):
            poster.post(batch)


def test_a_batch_that_is_too_large_is_halved_down_to_the_line(tmp_path):
    text = lines_of(7) + b'{"big":"' + b"x" * 3000 + b'"}\n' + lines_of(8)
    batch = Batch(tmp_path / "a", 11, text.count(b"\n"), 0, len(text), text)

    def answer(request: Request) -> Reply:
        return (
            fault(413, "too_large", "body of more than 1000 bytes")
            if len(request.body) > 1000
            else receipt(request.body.count(b"\n"))
        )

    with stub_service(answer) as stub, httpx.Client(base_url=stub.url) as client:
        tally = Poster(client, stub.url, None, 0.0).post(batch)
    assert (tally.accepted, tally.rejected, dict(tally.reasons)) == (15, 1, {"too_large": 1})
    assert tally.errors == [(f"{tmp_path / 'a'}:18", "body of more than 1000 bytes")]


def test_rejected_events_are_named_by_file_and_line(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_bytes(lines_of(5))

    def answer(request: Request) -> Reply:
        return knows_nothing(request) or receipt(
            3, 0, {"bad_rank": 2}, [{"index": 1, "reason": "bad_rank"}, {"index": 4, "reason": "bad_rank"}]
        )

    with stub_service(answer) as stub:
        done = upload([path], stub.url)
    assert done.tally.errors == [(f"{path}:2", "bad_rank"), (f"{path}:5", "bad_rank")]
    text = "\n".join(summary(done))
    assert "accepted   3 events" in text
    assert "rejected   2 events: bad_rank 2" in text


def test_a_refused_file_does_not_stop_the_others(tmp_path):
    (tmp_path / "a.ndjson").write_bytes(b"not json\n")
    (tmp_path / "b.ndjson").write_bytes(lines_of(4))

    def answer(request: Request) -> Reply:
        if b"not json" in request.body:
            return fault(400, "undecodable", "line 1 is not JSON")
        return knows_nothing(request) or receipt(4)

    with stub_service(answer) as stub:
        done = upload(find_files([str(tmp_path)]), stub.url)
    assert done.tally.accepted == 4
    ((path, reason),) = done.failed
    assert path.name == "a.ndjson"
    assert isinstance(reason, errors.UndecodableBody)
    assert "lines 1 to 1: line 1 is not JSON" in reason.message


# --- resuming ---


def test_the_acknowledged_beginning_grows_only_without_gaps(tmp_path):
    progress = Progress(tmp_path / "entry.json")
    batches = [Batch(tmp_path, i * 10 + 1, 10, i * 100, (i + 1) * 100, b"") for i in range(4)]
    for i, expected in ((2, 0), (0, 100), (3, 100), (1, 400)):
        progress.acknowledge(batches[i])
        assert progress.bytes_done == expected
    assert progress.lines_done == 40
    assert json.loads((tmp_path / "entry.json").read_text()) == {"bytes": 400, "lines": 40, "finished": False}


def test_a_second_run_goes_on_where_the_service_went_away(tmp_path, monkeypatch):
    monkeypatch.setattr(send_module, "read_batches", lambda *a: read_batches(*a, batch_bytes=10_000))
    path = tmp_path / "a.ndjson.gz"
    text = lines_of(2000)
    path.write_bytes(gzip.compress(text))
    posts_taken = 5

    def dies(request: Request) -> Reply:
        if request.method == "GET":
            return Reply({"job": "j"})
        return (
            receipt(1) if len([r for r in stub.requests if r.method == "POST"]) <= posts_taken else fault(503, "overloaded", "busy")
        )

    with stub_service(dies) as stub:
        with pytest.raises(errors.Overloaded, match=r"a\.ndjson\.gz: lines .*busy"):
            upload([path], stub.url, tmp_path, patience_s=0.0, workers=1)
        taken = b"".join(r.body for r in stub.posted()[:posts_taken])
        posts_taken = 10**9
        before = len(stub.posted())
        done = upload([path], stub.url, tmp_path)
        assert done.resumed_files == 1
        assert taken + b"".join(sorted((r.body for r in stub.posted()[before:]), key=text.index)) == text
        third = upload([path], stub.url, tmp_path)
        assert (third.files, third.skipped_files) == (0, 1)
        assert "skipped    1 file sent in an earlier run" in "\n".join(summary(third))
        fourth = upload([path], stub.url, tmp_path, restart=True)
        assert fourth.text_bytes == len(text)


def test_an_emptied_service_is_sent_everything_again(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_bytes(lines_of(10))
    empty = False

    def answer(request: Request) -> Reply:
        return (knows_nothing(request) if empty else None) or accept_all(request)

    with stub_service(answer) as stub:
        upload([path], stub.url, tmp_path)
        assert upload([path], stub.url, tmp_path).skipped_files == 1
        empty = True
        assert upload([path], stub.url, tmp_path).tally.accepted == 10


def test_a_changed_file_is_another_upload(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_bytes(lines_of(10))
    with stub_service(accept_all) as stub:
        upload([path], stub.url, tmp_path)
        path.write_bytes(lines_of(11))
        assert upload([path], stub.url, tmp_path).tally.accepted == 11


def test_a_cache_folder_that_cannot_be_made_only_costs_resuming(tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    path = tmp_path / "a.ndjson"
    path.write_bytes(lines_of(10))
    with stub_service(accept_all) as stub:
        assert upload([path], stub.url, tmp_path).tally.accepted == 10


def test_damaged_progress_is_ignored(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_bytes(lines_of(10))
    with stub_service(accept_all) as stub:
        upload([path], stub.url, tmp_path)
        for entry in (tmp_path / "cache").iterdir():
            entry.write_text("{")
        assert upload([path], stub.url, tmp_path).tally.accepted == 10


def test_no_service_is_one_clear_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(send_module, "FIRST_CONTACT_S", 0.0)
    path = tmp_path / "a.ndjson"
    path.write_bytes(lines_of(1))
    with stub_service(accept_all) as stub:
        url = stub.url
    with pytest.raises(errors.Unreachable, match=r"no service answers at .*crossrank serve"):
        upload([path], url)


def test_stopping_ends_a_waiting_batch():
    stop = threading.Event()
    batch = Batch(Path("a"), 1, 1, 0, 3, b"{}\n")
    with (
        stub_service(lambda r: fault(503, "overloaded", "busy", {"Retry-After": "60"})) as stub,
        httpx.Client(base_url=stub.url) as client,
    ):
        poster = Poster(client, stub.url, None, 1000.0, stop, pause=lambda s: bool(stop.set()))
        with pytest.raises(poster_module.Stopped):
            poster.post(batch)
