"""``workers.app`` with the spinning evaluator, for ``celery -A``."""

from tests.benchmarks import spinning  # noqa: F401 - replaces the evaluator before the application is put together
from workers.app import app

__all__ = ["app"]
