"""Celery tasks; a message holds only the id of a work unit, or of a candidate to replay."""

from __future__ import annotations

from uuid import UUID

from celery import Celery

from speciate.messaging.broker import TASKS
from speciate.messaging.replays import TASK as REPLAY
from speciate.messaging.replays import ReplayQueue
from speciate.runs.evaluate import replay_evaluation
from workers.composition import LazyEvaluator, executor, stores


def perform(work_id: str) -> None:
    """Perform a work unit unless it is done."""
    executor().execute(UUID(work_id))


def replay(candidate_id: str) -> None:
    """Score a candidate again without changing its run, and store the result for its page."""
    opened = stores()
    candidate = opened.queries.candidate(UUID(candidate_id))
    context = opened.work.context(candidate.run_id)
    found = replay_evaluation(context, candidate, LazyEvaluator())
    ReplayQueue(opened.redis, opened.celery).record(candidate, context.problem.space.names, found)


def register(app: Celery) -> None:
    """Register the task of every kind of work, and the replay task."""
    for name in TASKS.values():
        app.task(name=name)(perform)
    app.task(name=REPLAY)(replay)
