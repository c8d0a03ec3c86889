"""Attacks on a running service, for the suite and, longer, for ``python -m tests.benchmarks abuse``."""
