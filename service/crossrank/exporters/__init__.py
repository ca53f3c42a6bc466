"""Aligned events to the file formats of other tools, one format a file. The mirror of `importers`."""
