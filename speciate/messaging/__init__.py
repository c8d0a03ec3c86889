"""Celery and Redis between processes: the broker, signals, worker presence and replays. All of it may be lost."""
