"""From a snapshot to a bounded answer: derivation in the background, one question a file, no HTTP."""
