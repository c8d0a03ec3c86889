"""Texts of the scripts that go into an imported problem: they run in the sandbox, with the standard library alone."""
