"""Conformance suites for plug-ins: every strategy and every policy client inherits one in its tests."""
