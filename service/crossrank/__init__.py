"""crossrank: a distributed trace collector and cross-rank event reconstruction service for distributed training."""

__version__ = "0.1.0"
