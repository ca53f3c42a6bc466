"""Every bound of the service in one place, as data: name, default, unit and why. Nothing is unbounded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on input, memory and answers. All sizes in bytes unless the name says otherwise."""

    body_bytes: int = 64 << 20  # request body, also after decompression (OTLP recommends 64 MiB)
    inflight_bytes: int = 256 << 20  # decompressed bodies being worked on at once; beyond it 503
    decode_wait_ns: int = 500_000_000  # estimated wait for a decoder beyond which a request is told to come again
    suspect_ratio: int = 256  # a compressed body whose beginning grows by more is measured before it is read on
    body_read_ns: int = 60_000_000_000  # a body that takes longer to arrive is given up
    token_bytes_per_s: int = 256 << 20  # of one token; beyond it 503
    token_events_per_s: int = 4_000_000  # of one token; beyond it 503
    job_metrics: int = 50  # jobs with gauges of their own in /metrics: those that received something last
    job_series: int = 1000  # rejections by job, rank and reason in /metrics: the most frequent are kept
    import_bytes: int = 1 << 30  # a recorded file in clear, read as a stream; `crossrank import` sends larger ones in parts
    events_per_body: int = 1_000_000
    event_bytes: int = 1 << 20  # one event or span as sent; decoded objects of one event are at most some 50 times that
    attrs_per_event: int = 128
    key_bytes: int = 256
    value_bytes: int = 4096
    name_bytes: int = 1024
    names_per_job: int = 65_536  # distinct span names kept apart in answers (real jobs have hundreds); rarer ones become one
    job_bytes: int = 200
    links_per_event: int = 128
    group_ranks: int = 65_536
    json_depth: int = 64
    errors_listed: int = 100
    memtable_bytes: int = 128 << 20  # sealed beyond it; sealing takes some three times that
    memtable_age_ns: int = 60_000_000_000  # sealed when its oldest event is older
    wal_segment_bytes: int = 64 << 20
    wal_bytes: int = 2 << 30  # un-sealed WAL; beyond it 503
    identity_groups: int = 32  # row groups of segments whose identities are kept in memory while resends of them come, 1.5 MB each
    jobs: int = 10_000  # jobs in one data folder; events of further ones get 503
    compact_rows: int = 1_000_000  # most rows of a segment made of smaller ones; also what compaction holds in memory
    compact_segments: int = 8  # neighbouring small segments of a job that are worth making one of
    retain_ns: int | None = None  # events received longer ago are removed; None keeps them
    retain_job_bytes: int | None = None  # of segments of one job; beyond it its oldest ones are removed; None keeps them
    query_rows: int = 10_000  # default page of a list answer
    query_rows_max: int = 262_144
    export_spans: int = 2_000_000  # of an export for a trace viewer, which holds them all in memory; later ones are left out
    export_ranks: int = 16  # ranks in such an export when none are named: the most informative ones
    trace_spans: int = 20_000  # of an answer in Jaeger's form; its page and Grafana are slow beyond it
    derive_events: int = 20_000_000  # most events one derivation reads; older steps are left out and the answer says so
    derive_unasked_events: int = (
        500_000  # a job with more is only kept derived while somebody asks about it, since that holds arrays over all its events
    )
    profile_ranks: int = 64  # ranks asked for a profile at once; each posts a trace of some megabytes
    profile_jobs: int = 256  # jobs whose last request for a profile is remembered
    profile_wait_ns: int = 600_000_000_000  # a trace that has not come by then is not waited for
    live_streams: int = 64  # pages and terminals that follow at once; further ones get 503 and come again
    derived_jobs: int = 16  # jobs whose derived answers are kept in memory
    catch_up_events: int = 400_000  # of the latest jobs together that are derived after a start without being asked for
    disk_free_bytes: int = 512 << 20  # writes stop below it
