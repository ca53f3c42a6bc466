"""A service from a notebook: every question of the REST interface as a method, answers as tables, figures as the page draws them.

    import crossrank
    client = crossrank.Client("http://127.0.0.1:4318")
    client.stragglers("llama-70b", as_="pandas")
    client.figure("heatmap", "llama-70b")

`as_="dict"` gives the whole answer as it was sent; `"arrow"`, `"pandas"` and `"polars"` give its rows.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlsplit

import httpx
import msgspec
import numpy as np
import pyarrow as pa

from crossrank import errors
from crossrank.notebook.tables import As, shaped, table_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

DEFAULT_URL: Final = "http://127.0.0.1:4318"
_ARROW: Final = "application/vnd.apache.arrow.stream"
_TIMEOUT_S: Final = 120.0  # a first derivation of a large job takes a while
_PAGE: Final = 262_144
_FAULTS: Final = {fault.code: fault for fault in errors.CrossrankError.__subclasses__()}


class Client:
    """A running service. A context manager; `close` lets go of the connections."""

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        """token: for a service that asks for one; by default that of CROSSRANK_TOKEN."""
        token = os.environ.get("CROSSRANK_TOKEN", "") if token is None else token
        self.url = url.rstrip("/")
        local = urlsplit(self.url).hostname in {"127.0.0.1", "::1", "localhost"}
        headers = {"user-agent": "crossrank-notebook", **({"authorization": f"Bearer {token}"} if token else {})}
        self._http = httpx.Client(base_url=self.url, timeout=_TIMEOUT_S, headers=headers, trust_env=not local)

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """The JSON answer of `GET path`, for what has no method here. Raises the fault that the service states."""
        answer: dict[str, Any] = msgspec.json.decode(self._ask("GET", path, params).content)
        return answer

    def jobs(self, as_: As = "dict", *, timestamps: bool = False) -> Any:
        """All jobs: state, ranks, steps, top finding."""
        return self._rows("/v1/jobs", "jobs", as_, timestamps, {})

    def summary(self, job: str) -> dict[str, Any]:
        """Ranks, hosts, steps, events, alignment and the findings that matter most."""
        return self.get(_path(job))

    def steps(self, job: str, as_: As = "dict", *, timestamps: bool = False, **params: Any) -> Any:
        """When each step began and ended. params: first, last, limit."""
        return self._of_job(job, "steps", "steps", as_, timestamps, params)

    def stragglers(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """Ranks that are late by themselves, by what they cost. params: first, last."""
        return self._of_job(job, "stragglers", "stragglers", as_, False, params)

    def bottlenecks(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """Findings of every class, most expensive first. params: first, last."""
        return self._of_job(job, "bottlenecks", "findings", as_, False, params)

    def collectives(self, job: str, as_: As = "dict", *, timestamps: bool = False, **params: Any) -> Any:
        """Matched collectives. params: step, group, op, min_wait_ns, limit."""
        return self._of_job(job, "collectives", "collectives", as_, timestamps, params)

    def clocks(self, job: str, as_: As = "dict") -> Any:
        """Offset, drift and bounds of every clock."""
        return self._of_job(job, "clocks", "domains", as_, False, {})

    def breakdown(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """What every rank did with every step. params: first, last, rank, limit."""
        return self._of_job(job, "breakdown", "rows", as_, False, params)

    def ranks(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """Waits caused and suffered, and phases. params: first, last, limit."""
        return self._of_job(job, "ranks", "ranks", as_, False, params)

    def bandwidth(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """Latency and bandwidth of groups and links. params: peak_gbs, limit."""
        return self._of_job(job, "bandwidth", "speeds", as_, False, params)

    def mismatches(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """Desynchronised collectives."""
        return self._of_job(job, "mismatches", "mismatches", as_, False, params)

    def quality(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """What is doubtful about the data."""
        return self._of_job(job, "quality", "rows", as_, False, params)

    def compare(self, job: str, as_: As = "dict", **params: Any) -> Any:
        """What moved. params: first, last, base, base_from, base_to."""
        return self._of_job(job, "compare", "parts", as_, False, params)

    def critical_path(self, job: str, step: int, as_: As = "dict", *, timestamps: bool = False) -> Any:
        """What made a step as long as it was."""
        return self._of_job(job, f"steps/{int(step)}/critical-path", "segments", as_, timestamps, {})

    def hangs(self, job: str) -> dict[str, Any]:
        """Who holds the job up, and the proof."""
        return self.get(_path(job, "hangs"))

    def whatif(self, job: str, changes: Sequence[Mapping[str, Any]], **params: Any) -> dict[str, Any]:
        """Predicted step times under changes such as `{"rank": 3, "kind": "compute", "as": "median"}`."""
        body = msgspec.json.encode({"changes": [dict(change) for change in changes]})
        answer = self._ask("POST", _path(job, "whatif"), params, body)
        told: dict[str, Any] = msgspec.json.decode(answer.content)
        return told

    def events(self, job: str, as_: As = "arrow", *, limit: int | None = None, timestamps: bool = False, **params: Any) -> Any:
        """Aligned events over Arrow, all pages up to `limit`. params: rank, step, kind, group, from_ns, to_ns, aligned."""
        pages: list[pa.Table] = []
        rows, cursor = 0, None
        while True:
            most = _PAGE if limit is None else min(_PAGE, limit - rows)
            asked = {**params, "limit": most, **({"cursor": cursor} if cursor else {})}
            answer = self._ask("GET", _path(job, "events"), asked, accept=_ARROW)
            pages.append(pa.ipc.open_stream(answer.content).read_all())
            rows, cursor = rows + pages[-1].num_rows, answer.headers.get("x-next-cursor")
            if not cursor or (limit is not None and rows >= limit):
                break
        table = pa.concat_tables(pages).unify_dictionaries()
        if as_ == "dict":
            return table.to_pylist()
        return shaped(table, as_, timestamps=timestamps)

    def heatmap(self, job: str, **params: Any) -> dict[str, Any]:
        """Rank x step: `delay_ns` as a float32 array, `ranks` and `steps` its labels. params: first, last, rows, columns."""
        answer = self.get(_path(job, "heatmap"), **params)
        z = answer.pop("z")
        shape = [int(n) for n in z["shape"].split(", ")]
        return {**answer, "delay_ns": np.frombuffer(base64.b64decode(z["bdata"]), dtype="<f4").reshape(shape)}

    def figure(self, name: str, job: str, **params: Any) -> go.Figure:
        """steps, heatmap, breakdown, clocks, compare or bandwidth, by the very builder of the page.

        params: first, last, theme (light, dark), by (step, rank), base, base_from, base_to.
        """
        import plotly.graph_objects as go  # noqa: PLC0415  - takes half a second

        answer = self.get(_path(job, f"figures/{quote(name, safe='')}"), **params)
        return go.Figure(data=answer["data"], layout=answer["layout"])

    def _of_job(self, job: str, question: str, rows: str, as_: As, timestamps: bool, params: Mapping[str, Any]) -> Any:
        return self._rows(_path(job, question), rows, as_, timestamps, params)

    def _rows(self, path: str, rows: str, as_: As, timestamps: bool, params: Mapping[str, Any]) -> Any:
        answer = self.get(path, **params)
        return answer if as_ == "dict" else shaped(table_of(answer, rows), as_, timestamps=timestamps)

    def _ask(
        self, method: str, path: str, params: Mapping[str, Any], body: bytes | None = None, accept: str = "application/json"
    ) -> httpx.Response:
        names = {"first": "from", "last": "to"}  # `from` is a word of Python
        query = {names.get(name, name): str(value) for name, value in params.items() if value is not None}
        headers = {"accept": accept, **({"content-type": "application/json"} if body is not None else {})}
        try:
            answer = self._http.request(method, path, params=query, content=body, headers=headers)
        except httpx.HTTPError as fault:
            raise errors.Unreachable(f"no answer from {self.url} ({fault or type(fault).__name__})") from fault
        if answer.is_error:
            raise _fault_of(answer)
        return answer


def _path(job: str, question: str = "") -> str:
    return f"/v1/jobs/{quote(job, safe='')}" + (f"/{question}" if question else "")


def _fault_of(answer: httpx.Response) -> errors.CrossrankError:
    try:
        stated = msgspec.json.decode(answer.content)["error"]
        return _FAULTS.get(stated["code"], errors.Refused)(stated["message"], **stated["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return errors.Refused(f"HTTP {answer.status_code} {answer.text[:200]}")
