"""HTTP only: parse, call one function, shape the answer. `errors` is the only mapping from faults to status codes."""
