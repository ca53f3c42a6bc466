"""Acknowledged events, kept: log, memtable, Parquet segments, catalog. The only writer of the data folder."""
