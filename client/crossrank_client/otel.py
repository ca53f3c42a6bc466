"""For programs that are traced by OpenTelemetry already: a span processor that hands ended spans to the client.

    provider.add_span_processor(CrossrankSpanProcessor())          # after crossrank_client.init(...)

OpenTelemetry stamps spans with the wall clock. The processor takes monotonic stamps itself when a span starts and ends, so its spans
lie on the client's clock beside all others. Attributes named like columns (`crossrank.group`, `crossrank.seq`, …, with or without the prefix) become those.
Ids are kept: trace and span ids of the exported spans find the same spans in the service.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from crossrank_client.clock import mono_ns
from crossrank_client.encode import COLUMNS
from crossrank_client.span import active

if TYPE_CHECKING:
    from opentelemetry.context import Context

PREFIX = "crossrank."
OPEN_SPANS = 10_000


class CrossrankSpanProcessor(SpanProcessor):
    """Posts every ended span through the client that is active then; drops it where there is none. Never raises."""

    def __init__(self) -> None:
        self._started: dict[int, tuple[int, str]] = {}

    def on_start(self, span: ReadableSpan, parent_context: Context | None = None) -> None:  # noqa: ARG002 -- the interface's
        """Takes the time."""
        context = span.get_span_context()
        if context is None:
            return
        with contextlib.suppress(Exception):  # two threads at the bound at once: one entry more or less
            while len(self._started) >= OPEN_SPANS:  # those that never end
                del self._started[next(iter(self._started))]
            self._started[context.span_id] = (mono_ns(), threading.current_thread().name)

    def on_end(self, span: ReadableSpan) -> None:
        """Records the span."""
        with contextlib.suppress(Exception):  # it would reach whoever ends the span
            self._record(span, mono_ns())

    def _record(self, span: ReadableSpan, now: int) -> None:
        client, context = active(), span.get_span_context()
        if context is None:
            return
        began = self._started.pop(context.span_id, None)
        if client is None or span.start_time is None or span.end_time is None:
            return
        fields = _fields(dict(span.attributes or {}))
        kind = fields.pop("kind", None)
        lane = fields.pop("lane", None) or ("cpu:main" if began is None or began[1] == "MainThread" else f"cpu:{began[1]}")
        start = now - (span.end_time - span.start_time) if began is None else began[0]
        made = client.finished(span.name, kind, min(start, now), now, client.lane_named(str(lane)), fields)
        made.id, made.parent = context.span_id, None
        made.fields["trace_id"] = f"{context.trace_id:032x}"
        if span.parent is not None:
            made.fields["parent_span_id"] = f"{span.parent.span_id:016x}"
        links = [f"{link.context.span_id:016x}" for link in span.links if link.context is not None]
        if links:
            made.fields["links"] = links
        if not span.status.is_ok and span.status.description:
            made.fields["error"] = span.status.description
        client.append(made)

    def shutdown(self) -> None:
        """The client ends by itself."""
        self._started.clear()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Waits until what was recorded is with the service."""
        client = active()
        return client is None or client.flush(timeout_millis / 1e3)


def _fields(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes with the names of columns, and the rest as they are."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        bare = key.removeprefix(PREFIX)
        named = bare in COLUMNS or bare in {"step", "kind", "lane"}
        found[bare if named else key] = list(value) if isinstance(value, tuple) else value
    return found
