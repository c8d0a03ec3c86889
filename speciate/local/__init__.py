"""Runs without a service: one process is API and worker, on the PostgreSQL of the data directory."""

from speciate.process_roots import make_importable

make_importable()  # whoever imports this package may be another program than ours
