"""Evolutionary search on reward vectors: pure, seeded and stateless between calls."""
