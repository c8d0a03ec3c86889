"""Stored things as they are read back: what REST answers, what the CLI prints and what the Python SDK returns."""
