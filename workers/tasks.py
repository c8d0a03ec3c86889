"""Celery tasks; a message holds only the id of a work unit, a candidate to replay or a seed to check."""

from __future__ import annotations

from uuid import UUID

from celery import Celery

from speciate.messaging.broker import TASKS
from speciate.messaging.replays import TASK as REPLAY
from speciate.messaging.replays import ReplayQueue
from speciate.messaging.seed_checks import TASK as CHECK_SEED
from speciate.messaging.seed_checks import SeedChecks
from speciate.ports.work import WorkKind
from speciate.runs.evaluate import replay_evaluation
from workers.composition import LazyEvaluator, executor, fair_queue, stores


def perform(work_id: str) -> None:
    """Perform a work unit unless it is done."""
    executor().execute(UUID(work_id))


def perform_evaluation(work_id: str) -> None:
    """Perform an evaluation, the message's own or one of a run that has fewer."""
    own = UUID(work_id)
    chosen = fair_queue().choose(own)
    if chosen is not None and not executor().execute(chosen) and chosen != own:
        executor().execute(own)  # another worker has taken the chosen one


def replay(candidate_id: str) -> None:
    """Score a candidate again without changing its run, and store the result for its page."""
    opened = stores()
    candidate = opened.queries.candidate(UUID(candidate_id))
    context = opened.work.context(candidate.run_id)
    found = replay_evaluation(context, candidate, opened.work, LazyEvaluator())
    ReplayQueue(opened.redis, opened.celery).record(candidate, context.problem.space.names, found)


def check_seed(key: str) -> None:
    """Score the seed program of a problem for the request that waits for it."""
    SeedChecks(stores().redis, stores().celery).perform(key, LazyEvaluator())


def register(app: Celery) -> None:
    """Register the task of every kind of work, the replay task and the check of seed programs."""
    for kind, name in TASKS.items():
        app.task(name=name)(perform_evaluation if kind in (WorkKind.EVALUATE, WorkKind.CONFIRM) else perform)
    app.task(name=REPLAY)(replay)
    app.task(name=CHECK_SEED)(check_seed)
