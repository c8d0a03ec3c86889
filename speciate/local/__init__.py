"""Runs without a service: one process is API and worker, on the PostgreSQL of the data directory."""
