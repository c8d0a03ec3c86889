"""Stores on PostgreSQL, the source of truth; Redis only caches. ``work.memory`` serves tests and replays."""
