"""Candidates: inserting, listing, the population and the cached archive."""
