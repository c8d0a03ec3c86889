"""The tasks: a doorbell with the id of a unit of work, and nothing else."""

from __future__ import annotations

from uuid import UUID

from celery import Celery

from speciate.storage.broker import TASKS
from workers.composition import workbench


def perform(work_id: str) -> None:
    """Do a unit of work if it is still to be done."""
    workbench().perform(UUID(work_id))


def register(app: Celery) -> None:
    """Register a task for every kind of work."""
    for name in TASKS.values():
        app.task(name=name)(perform)
