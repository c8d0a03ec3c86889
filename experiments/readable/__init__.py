"""Measure what share of a small model's completions the parser reads."""
