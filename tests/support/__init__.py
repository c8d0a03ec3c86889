"""Test doubles, servers and conformance suites shared by the tests."""
