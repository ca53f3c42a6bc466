"""The same events in any batching, order, duplication, format and compression give the same answers."""

import gzip
import json
import tempfile
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.faults import SlowCompute
from crossrank.simulate.job import simulate
from tests.support.inprocess import InProcess

JOB = "delivery"
SEED = 11
CONFIG = JobConfig(job=JOB, dp=2, tp=2, pp=2, steps=12, microbatches=2, ranks_per_host=2)
SIMULATED = simulate(CONFIG, (SlowCompute(rank=5, phase="forward", steps=(3, 9), extra_ns=8_000_000),), seed=SEED)
PROTOBUF, JSON, NDJSON = "application/x-protobuf", "application/json", "application/x-ndjson"
ENCODINGS = {"": lambda b: b, "gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.ZstdCompressor().compress}


def as_array(events: pa.Table) -> bytes:
    return b"[" + encode.ndjson(events).strip().replace(b"\n", b",") + b"]"


FORMATS = {
    "ndjson": lambda t: ("/v1/events", NDJSON, encode.ndjson(t)),
    "array": lambda t: ("/v1/events", JSON, as_array(t)),
    "object": lambda t: ("/v1/events", JSON, b'{"events":' + as_array(t) + b"}"),
    "protobuf": lambda t: ("/v1/traces", PROTOBUF, encode.otlp_protobuf(t)),
}
QUESTIONS = ("steps", "clocks", "collectives", "stragglers", "bottlenecks", "steps/3/critical-path", "events")
# Columns that say how an event was sent, not what it is: OTLP carries a resource and a scope of its own.
SENDER_ONLY = ("received_ns", "otel", "flags")


def answers(service: InProcess) -> dict[str, Any]:
    service.derive(JOB)
    found = {
        q: service.get(f"/v1/jobs/{JOB}/{q}", **({"limit": 100_000} if q in ("events", "collectives") else {})) for q in QUESTIONS
    }
    for event in found["events"]["events"]:
        for column in SENDER_ONLY:
            event.pop(column, None)
    found["summary"] = {k: v for k, v in service.get(f"/v1/jobs/{JOB}").items() if k != "events"}
    return found


@cache
def expected() -> dict[str, Any]:
    """The answers after one plain delivery."""
    with tempfile.TemporaryDirectory() as folder, InProcess(Path(folder)) as service:
        receipt = service.post("/v1/events", encode.ndjson(SIMULATED.events), NDJSON)
        assert (receipt["accepted"], receipt["duplicate"], receipt["rejected"]) == (SIMULATED.events.num_rows, 0, 0)
        return answers(service)


def test_the_answers_are_about_something() -> None:
    assert expected()["stragglers"]["stragglers"][0]["rank"] == 5
    assert len(expected()["steps"]["steps"]) == CONFIG.steps
    assert expected()["clocks"]["violations"]["after_repair"] == 0


@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32 - 1),
    batches=st.integers(1, 24),
    duplicated=st.floats(0, 0.5),
    formats=st.lists(st.sampled_from(sorted(FORMATS)), min_size=1, max_size=4),
    encodings=st.lists(st.sampled_from(sorted(ENCODINGS)), min_size=1, max_size=4),
    seal=st.booleans(),
)
def test_delivery_does_not_matter(
    seed: int, batches: int, duplicated: float, formats: list[str], encodings: list[str], seal: bool
) -> None:
    rng = np.random.default_rng(seed)
    rows = SIMULATED.events.num_rows
    again = rng.permutation(rows)[: int(duplicated * rows)]
    order = rng.permutation(np.concatenate((np.arange(rows), again)))
    with tempfile.TemporaryDirectory() as folder, InProcess(Path(folder)) as service:
        for i, part in enumerate(np.array_split(order, batches)):
            route, content_type, body = FORMATS[formats[i % len(formats)]](SIMULATED.events.take(pa.array(part)))
            encoding = encodings[i % len(encodings)]
            service.post(route, ENCODINGS[encoding](body), content_type, encoding)
            if seal and i == batches // 2:
                service.rooms.store.seal()
        assert json.dumps(answers(service), sort_keys=True) == json.dumps(expected(), sort_keys=True)
        tallies = service.get(f"/v1/jobs/{JOB}")["events"]
        # OTLP says more of an event (resource, scope) than the native formats do: one sent as both is counted as a conflict.
        conflicts = tallies["conflict"] if {f == "protobuf" for f in formats[:batches]} == {True, False} else 0
        assert (tallies["accepted"], tallies["duplicate"], tallies["conflict"]) == (
            rows + conflicts,
            len(again) - conflicts,
            conflicts,
        )


def test_start_and_end_halves_are_joined_across_requests() -> None:
    """The seed form, halves shuffled over requests: the same spans as the full form where both say the same."""
    rng = np.random.default_rng(SEED)
    lines = encode.seed_form(SIMULATED.events).strip().split(b"\n")
    order = rng.permutation(len(lines))
    with tempfile.TemporaryDirectory() as folder, InProcess(Path(folder)) as service:
        for part in np.array_split(order, 9):
            service.post("/v1/events", b"\n".join(lines[i] for i in part), NDJSON)
        found = answers(service)
    for question in ("steps", "stragglers"):
        assert found[question] == expected()[question], question
