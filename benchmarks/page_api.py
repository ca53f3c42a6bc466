"""What the page waits for on a large job: windows of the timeline, heatmap, figures, one span. Real service, real HTTP.

Two jobs of 1,024 ranks and about a million spans: 50 steps of 20 spans (timeline), 1,000 steps of one span (heatmap). The first
question after a derivation also builds the index that the following ones use; it is given apart.
"""

from __future__ import annotations

import argparse
import itertools
import random
import time
from functools import partial
from pathlib import Path

import httpx
from _big_job import JOB, fill, open_big
from _measure import percentile
from _results import Results
from _service import Service, service

RANKS = 1024
SCREEN = {"width": 1600}


def prepare(data: Path, *, steps: int, spans: int) -> None:
    """A data folder with one job."""
    data.mkdir(parents=True)
    store = open_big(data)
    fill(store, ranks=RANKS, steps=steps, spans=spans)
    store.close()


def ask(client: httpx.Client, path: str, **params: object) -> tuple[float, int, int, httpx.Response]:
    """Milliseconds, bytes on the wire and in clear, and the answer."""
    began = time.perf_counter()
    with client.stream("GET", f"/v1/jobs/{JOB}{path}", params=params) as answer:
        answer.raise_for_status()
        answer.read()
    return (time.perf_counter() - began) * 1e3, answer.num_bytes_downloaded, len(answer.content), answer


def windows(end: int, rounds: int) -> list[dict[str, object]]:
    """Pans and zooms as a person makes them: some 40 rows of any ranks, from the whole job down to a millionth of it."""
    chosen = random.Random(1)
    out: list[dict[str, object]] = []
    for _ in range(rounds):
        width = max(1000, round(end * 10 ** chosen.uniform(-6, 0)))
        first, rank = chosen.randrange(max(1, end - width)), chosen.randrange(RANKS - 20)
        out.append({"from": first, "to": first + width, "ranks": f"{rank}-{rank + 19}", "rows": 40, **SCREEN})
    return out


def timeline(server: Service, results: Results, rounds: int) -> None:
    """The long job with many spans in each step."""
    with httpx.Client(base_url=server.url, timeout=600) as client:
        began = time.perf_counter()
        client.post(f"/v1/jobs/{JOB}/derive?wait=true").raise_for_status()
        results.add("timeline job: deriving", time.perf_counter() - began, "s")
        took, _, _, answer = ask(client, "/timeline", **SCREEN)
        results.add("timeline: first question, with the index", took, "ms")
        end = answer.json()["end_ns"]
        measured = [ask(client, "/timeline", **window)[:3] for window in windows(end, rounds)]
        results.add("timeline, pan and zoom over 40 rows: p50", percentile([m[0] for m in measured], 0.5), "ms")
        results.add("timeline, pan and zoom over 40 rows: p95", percentile([m[0] for m in measured], 0.95), "ms", at_most=100)
        results.add("timeline, pan and zoom over 40 rows: largest answer", max(m[2] for m in measured) / 1e6, "MB", at_most=1)
        whole = [ask(client, "/timeline", rows=2048, **SCREEN)[:3] for _ in range(10)]
        results.add("timeline, all 1,024 ranks and all steps: p95", percentile([m[0] for m in whole], 0.95), "ms", at_most=100)
        results.add("timeline, all 1,024 ranks and all steps: answer", whole[0][2] / 1e6, "MB")
        results.add("timeline, all 1,024 ranks and all steps: on the wire", whole[0][1] / 1e6, "MB", at_most=1)
        found = [ask(client, "/timeline/search", q="collective_1", limit=50)[0] for _ in range(10)]
        results.add("search: p95", percentile(found, 0.95), "ms")
        hits = ask(client, "/timeline/search", q="collective_1", limit=20)[3].json()["found"]
        spans = [ask(client, f"/spans/{hit['rank']}/{hit['id']}")[0] for hit in hits]
        results.add("one span: p95", percentile(spans, 0.95), "ms")
        for name, by in (("steps", "step"), ("breakdown", "step"), ("breakdown", "rank"), ("clocks", "step")):
            times = [ask(client, f"/figures/{name}", by=by)[0] for _ in range(5)]
            results.add(f"figure {name} by {by}: first", times[0], "ms")
            results.add(f"figure {name} by {by}: then", percentile(times[1:], 0.5), "ms")
        results.add("resident memory of the service", server.rss_mb(), "MB")


def heatmap(server: Service, results: Results) -> None:
    """The job with many steps."""
    with httpx.Client(base_url=server.url, timeout=600) as client:
        client.post(f"/v1/jobs/{JOB}/derive?wait=true").raise_for_status()
        took, _, _, first = ask(client, "/heatmap", rows=RANKS, columns=1000)
        results.add("heatmap of 1,024 x 1,000: first question, with the map", took, "ms")
        results.add("heatmap: answer", len(first.content) / 1e6, "MB")
        sizes = itertools.islice(itertools.cycle(((RANKS, 1000), (512, 800))), 20)
        times = [ask(client, "/heatmap", rows=rows, columns=columns)[0] for rows, columns in sizes]
        results.add("heatmap of 1,024 x 1,000: p95", percentile(times, 0.95), "ms", at_most=300)
        figure = [ask(client, "/figures/heatmap")[0] for _ in range(10)]
        results.add("heatmap figure: p95", percentile(figure, 0.95), "ms", at_most=300)


def main() -> None:
    """Runs both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    results = Results("page_api")
    with service(partial(prepare, steps=50, spans=20)) as server:
        timeline(server, results, options.rounds)
    with service(partial(prepare, steps=1000, spans=1)) as server:
        heatmap(server, results)
    results.finish()


if __name__ == "__main__":
    main()
