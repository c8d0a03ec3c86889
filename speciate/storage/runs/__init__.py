"""Runs: creation, steering, progress, queries and retention."""
