"""``workers.app`` with the spinning evaluator, for ``celery -A``."""

from benchmarks import spinning  # noqa: F401 - replaces the evaluator before the application is put together
from workers.app import app

__all__ = ["app"]
