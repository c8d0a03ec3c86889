"""Attacks on a running service, for the test suite and for ``python -m benchmarks abuse``."""
