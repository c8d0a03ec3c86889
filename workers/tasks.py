"""Celery tasks; a message holds only the id of a work unit, a candidate to replay or a seed to check."""

import time
from typing import Final
from uuid import UUID

from celery import Celery, current_task

from speciate.messaging.broker import TASKS, send_work
from speciate.messaging.replays import TASK as REPLAY
from speciate.messaging.seed_checks import TASK as CHECK_SEED
from speciate.ports.work import Queue, WorkKind, WorkRef
from workers.composition import evaluate_workers, evaluator, fair_queue, stores, worker

_ATTEMPTS: Final = 2
_PASS_ON_S: Final = 0.2


def perform(work_id: str) -> None:
    worker().executor.execute(UUID(work_id))


def perform_evaluation(work_id: str) -> None:
    """Execute the unit of the message, or one of a run that has fewer in progress."""
    message_unit = UUID(work_id)
    for _ in range(_ATTEMPTS):
        unit = fair_queue().choose(message_unit)
        if unit is None:
            _pass_on(message_unit)
            return
        if worker().executor.execute(unit) or unit == message_unit:
            return
        # Another worker has leased it.


def _pass_on(work_id: UUID) -> None:
    """Send the message of a unit again if this worker cannot evaluate it and another one can."""
    run_id = fair_queue().unsupported_run(work_id)
    if run_id is not None and evaluate_workers().can_evaluate(stores().work.context(run_id).problem):
        time.sleep(_PASS_ON_S)  # this slot has nothing else to do
        send_work(stores().celery, WorkRef(work_id, WorkKind.EVALUATE))


def replay(candidate_id: str) -> None:
    """Score a candidate again without changing its run, and store the result for its page."""
    opened = stores()
    candidate = opened.queries.candidate(UUID(candidate_id))
    context = opened.work.context(candidate.run_id)
    if not evaluator().can_evaluate(context.problem) and evaluate_workers().can_evaluate(context.problem):
        time.sleep(_PASS_ON_S)
        opened.celery.send_task(REPLAY, args=[candidate_id], queue=Queue.EVALUATE.value, ignore_result=True)
        return
    worker().replay(candidate)


def check_seed(key: str) -> None:
    """Score the seed program of a problem for the request that waits for it."""
    worker().check_seed(key, current_task.request.hostname, evaluator().can_evaluate)


def register(app: Celery) -> None:
    for kind, name in TASKS.items():
        app.task(name=name)(perform_evaluation if kind in (WorkKind.EVALUATE, WorkKind.CONFIRM) else perform)
    app.task(name=REPLAY)(replay)
    app.task(name=CHECK_SEED)(check_seed)
