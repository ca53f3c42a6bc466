-- The catalog of a data folder. `events` is what readers of the lake query; its files are the segments, written by us and
-- registered in the same transaction as their row in `segments`, which is the guard against registering a file twice.
-- Every table is a rebuildable cache: the truth is the write-ahead log and the checksummed Parquet files with their footers.

CREATE TABLE lake.events (
    job VARCHAR,
    attempt INTEGER,
    rank INTEGER,
    host VARCHAR,
    clock VARCHAR,
    lane VARCHAR,
    name VARCHAR,
    kind VARCHAR,
    start_ns BIGINT,
    end_ns BIGINT,
    step BIGINT,
    "group" VARCHAR,
    seq BIGINT,
    group_ranks INTEGER[],
    op VARCHAR,
    peer INTEGER,
    bytes BIGINT,
    dtype VARCHAR,
    is_async BOOLEAN,
    trace_id BLOB,
    span_id BLOB,
    parent_span_id BLOB,
    links BLOB[],
    value DOUBLE,
    attrs VARCHAR,
    otel VARCHAR,
    flags INTEGER,
    received_ns BIGINT
);

CREATE TABLE lake.segments (
    path VARCHAR,          -- below the lake folder
    job VARCHAR,
    rows BIGINT,
    amends BIGINT,         -- rows that replace or complete a row of an earlier segment
    attempt_min INTEGER,
    attempt_max INTEGER,
    rank_min INTEGER,
    rank_max INTEGER,
    ranks INTEGER,         -- how many distinct ranks
    start_min_ns BIGINT,   -- null when no row has a start yet
    start_max_ns BIGINT,
    end_max_ns BIGINT,
    has_open BOOLEAN,      -- some row has no end or no start yet
    size_bytes BIGINT,
    crc32c UINTEGER,       -- of the whole file
    format INTEGER         -- of the file's columns and footer
);

CREATE TABLE lake.jobs (
    job VARCHAR,
    version BIGINT,
    accepted BIGINT,
    duplicate BIGINT,
    conflict BIGINT,
    last_received_ns BIGINT,
    attempts INTEGER[],
    forgot BOOLEAN         -- identities were dropped from memory: every read merges
);

CREATE TABLE lake.rejects (
    job VARCHAR,
    rank INTEGER,          -- null when it could not be read
    reason VARCHAR,
    events BIGINT
);

CREATE TABLE lake.topologies (
    job VARCHAR,
    topology VARCHAR       -- JSON, as merged last
);

-- How far the write-ahead log has been handed over: files with a lower number are in segments.
CREATE TABLE lake.handover (
    wal_floor BIGINT,
    next_segment BIGINT
);

INSERT INTO lake.handover VALUES (0, 1);
