-- A compacted segment stands in the place of those it was made of, by the numbers they were written under.
ALTER TABLE lake.segments ADD COLUMN covers_from BIGINT;
ALTER TABLE lake.segments ADD COLUMN covers_to BIGINT;
-- When its rows were received, by the service's clock: what retention by age goes by. Null: not known.
ALTER TABLE lake.segments ADD COLUMN received_min_ns BIGINT;
ALTER TABLE lake.segments ADD COLUMN received_max_ns BIGINT;
UPDATE lake.segments SET
    covers_from = CAST(regexp_extract(path, '([0-9]+)\.parquet$', 1) AS BIGINT),
    covers_to = CAST(regexp_extract(path, '([0-9]+)\.parquet$', 1) AS BIGINT);
