"""Conformance suites that any strategy, store, policy or sandbox inherits, and small real parts to test with."""
