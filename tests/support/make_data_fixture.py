"""Makes the data folder that is kept of a format version: run once when the version comes, never again.

    python -m tests.support.make_data_fixture tests/fixtures/data_v2

The folder is as a kill leaves it: sealed and compacted segments, a second job, a topology, rejects, and events that are only in
the log. Beside it stand the answers that every later release has to give.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from crossrank.api.taking import admit_post
from crossrank.counters import Counters
from crossrank.limits import Limits
from crossrank.model.post import Post
from crossrank.store.store import Store

T0 = 1_800_000_000_000_000_000
LIMITS = Limits(disk_free_bytes=0, compact_segments=2)


def open_real(folder: Path) -> Store:
    """The store with the service's own decoder."""
    return Store.open(folder, decode=partial(admit_post, limits=LIMITS), limits=LIMITS, counters=Counters(), now_ns=lambda: T0)


def answers(store: Store) -> dict[str, Any]:
    """Everything the store says about every job, as JSON values."""
    said = {}
    for entry in store.jobs():
        rows = store.snapshot(entry.job).events().to_pylist()
        shown = [{k: v.hex() if isinstance(v, bytes) else v for k, v in r.items() if v is not None} for r in rows]
        said[entry.job] = {
            "events": json.loads(json.dumps(sorted(shown, key=lambda r: (r["rank"], r["span_id"])), default=str)),
            "attempts": list(entry.attempts),
            "tallies": store.tallies(entry.job),
            "rejects": [list(r) for r in store.rejects(entry.job)],
            "topology": store.topology(entry.job),
            "partial": list(store.snapshot(entry.job).partial),
        }
    return said


def send(store: Store, events: list[dict[str, Any]], received_ns: int) -> None:
    """Posts events as newline-delimited JSON."""
    post = Post("events", "application/x-ndjson", "", "job-a", received_ns, "\n".join(map(json.dumps, events)).encode())
    store.append(post, admit_post(post, limits=LIMITS)).result(30)


def event(span: int, **more: Any) -> dict[str, Any]:
    """A span of rank `span % 4`; start and end in the first second behind T0."""
    start = T0 + span * 1_000_000
    base = {"rank": span % 4, "host": f"h{span % 2}", "lane": "cuda:0", "name": "forward", "kind": "compute", "step": span // 8}
    times = {"start_ns": start, "end_ns": start + 800_000}
    return {**base, **times, "span_id": f"{span:016x}", "trace_id": f"{span // 8 + 1:032x}", **more}


def fill(folder: Path) -> Store:
    """The events of the fixture; the store is left open, with a part in the log only."""
    store = open_real(folder)
    send(store, [event(i) for i in range(1, 25)] + [event(30, end_ns=None), {"rank": 1, "name": "no times"}], T0 + 1)
    store.put_topology("job-a", {"world_size": 4, "ranks": [{"rank": r, "host": f"h{r % 2}"} for r in range(4)]})
    store.seal()
    group = {"kind": "collective", "group": "dp", "seq": 1, "op": "all_reduce", "bytes": 4096, "dtype": "bf16"}
    send(store, [event(30), event(3), event(5, name="backward"), event(31, **group, attrs={"deep": {"x": [1, 2.5, None]}})], T0 + 2)
    send(store, [event(1, job="job-b", attempt=2)], T0 + 3)
    store.seal()
    store.compact()
    send(store, [event(40, end_ns=None), event(41), event(31, **group, attrs={"deep": {"x": [1, 2.5, None]}})], T0 + 4)
    return store


def main(target: Path) -> None:
    """Writes folder.tar.gz and answers.json into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        store = fill(Path(temporary) / "data")
        (target / "answers.json").write_text(json.dumps(answers(store), indent=1, sort_keys=True) + "\n")
        with tarfile.open(target / "folder.tar.gz", "w:gz") as archive:  # while it is open: as a kill would leave it
            for part in sorted((Path(temporary) / "data").rglob("*")):
                if part.is_file() and part.name != "lock":
                    archive.add(part, part.relative_to(temporary).as_posix(), filter=_anonymous)
        store.close()


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main(Path(sys.argv[1]))
