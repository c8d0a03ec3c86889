"""Celery workers: thin tasks over the use cases of ``speciate.runs``, and the reconciler."""
