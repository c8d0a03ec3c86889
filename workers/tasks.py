"""The tasks: a doorbell with the id of a unit of work, or of a candidate to replay, and nothing else."""

from __future__ import annotations

from uuid import UUID

from celery import Celery

from speciate.runs.recheck import recheck
from speciate.storage.broker import TASKS
from speciate.storage.replays import TASK as REPLAY
from speciate.storage.replays import Replays
from workers.composition import LateEvaluator, stores, workbench


def perform(work_id: str) -> None:
    """Do a unit of work if it is still to be done."""
    workbench().perform(UUID(work_id))


def replay(candidate_id: str) -> None:
    """Score a candidate again, for whoever asked on its page; its run is not changed."""
    opened = stores()
    candidate = opened.queries.candidate(UUID(candidate_id))
    context = opened.work.context(candidate.run_id)
    found = recheck(context, candidate, LateEvaluator())
    Replays(opened.redis, opened.celery).book(candidate, context.problem.space.names, found)


def register(app: Celery) -> None:
    """Register a task for every kind of work, and the one for replays."""
    for name in TASKS.values():
        app.task(name=name)(perform)
    app.task(name=REPLAY)(replay)
