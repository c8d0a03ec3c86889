"""Use cases over ports: check, generate, evaluate, confirm."""
