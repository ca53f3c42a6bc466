"""Bytes to admitted event columns: bounded decompression, one decoder a format, one admission for all of them."""
