"""Either decoder, chosen by a setting, stores the same events, also after a restart that decodes the log again."""

from pathlib import Path

import pytest

from crossrank.app import build_api, close_rooms, open_rooms
from crossrank.limits import Limits
from crossrank.settings import Settings
from crossrank.simulate import encode
from crossrank.simulate.config import JobConfig
from crossrank.simulate.job import simulate

EVENTS = simulate(JobConfig(job="d", dp=2, tp=1, pp=2, steps=2, microbatches=1, ranks_per_host=1), seed=4).events


@pytest.mark.parametrize("form", ["ndjson", "otlp_protobuf"])
def test_both_decoders_store_the_same(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    import httpx

    stored = []
    for decoder in ("compiled", "python"):
        monkeypatch.setenv("CROSSRANK_DECODER", decoder)
        rooms = open_rooms(Settings(data=tmp_path / decoder), Limits())
        assert rooms.decoder == decoder
        route, kind = ("/v1/events", encode.NDJSON_TYPE) if form == "ndjson" else ("/v1/traces", encode.PROTOBUF_TYPE)

        async def post(api: object = build_api(rooms), route: str = route, kind: str = kind) -> int:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://test") as client:
                return (await client.post(route, content=getattr(encode, form)(EVENTS), headers={"Content-Type": kind})).status_code

        assert asyncio.run(post()) == 200
        table = rooms.store.snapshot("d").events().drop_columns(["received_ns"])
        stored.append(table.sort_by([("rank", "ascending"), ("span_id", "ascending")]).to_pylist())
        close_rooms(rooms)
    assert stored[0] == stored[1]
    assert len(stored[0]) == EVENTS.num_rows
