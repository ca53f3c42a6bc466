"""The vocabulary: event columns, ids, traces, matches, clock maps, results. No I/O, no HTTP, no SQL, no clock."""
