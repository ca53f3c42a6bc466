"""A seeded training job with wrong clocks and injected faults, whose true times and costs are known."""
