"""Recorded files of other tools to the same event columns that senders post; one format a file."""
