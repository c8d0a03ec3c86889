"""Speciate: evolutionary search with language models on vector rewards."""

__version__ = "0.1.0"
