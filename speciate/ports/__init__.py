"""Protocols and records through which the use cases reach databases, policies and evaluators."""
