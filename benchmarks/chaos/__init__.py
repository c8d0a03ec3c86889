"""The whole service under load and faults: ``python -m benchmarks.chaos``."""
