"""A worker that cannot evaluate a unit passes its message on, if another worker can."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from speciate.ports.work import WorkKind
from workers import tasks


@pytest.fixture
def worker(monkeypatch):
    """A worker without the language of the only ready unit; ``sent`` are the messages that it sends."""
    unit, run = uuid4(), uuid4()
    found = SimpleNamespace(unit=unit, chosen=None, executed=[], sent=[], others_can=True)

    def execute(work_id):
        found.executed.append(work_id)
        return True

    queue = SimpleNamespace(choose=lambda _: found.chosen, unsupported_run=lambda _: run)
    work = SimpleNamespace(context=lambda run_id: SimpleNamespace(problem=run_id))
    others = SimpleNamespace(can_evaluate=lambda problem: problem == run and found.others_can)
    monkeypatch.setattr(tasks, "fair_queue", lambda: queue)
    monkeypatch.setattr(tasks, "worker", lambda: SimpleNamespace(executor=SimpleNamespace(execute=execute)))
    monkeypatch.setattr(tasks, "evaluate_workers", lambda: others)
    monkeypatch.setattr(tasks, "stores", lambda: SimpleNamespace(work=work, celery=None))
    monkeypatch.setattr(tasks, "send_work", lambda _, ref: found.sent.append(ref))
    monkeypatch.setattr(tasks, "_PASS_ON_S", 0.0)
    return found


def test_the_message_goes_to_another_worker(worker):
    tasks.perform_evaluation(str(worker.unit))
    assert [(ref.id, ref.kind) for ref in worker.sent] == [(worker.unit, WorkKind.EVALUATE)]
    assert worker.executed == []


def test_without_another_worker_it_is_left_to_the_reconciler(worker):
    worker.others_can = False
    tasks.perform_evaluation(str(worker.unit))
    assert worker.sent == worker.executed == []


def test_a_unit_that_it_can_evaluate_is_executed(worker):
    worker.chosen = worker.unit
    tasks.perform_evaluation(str(worker.unit))
    assert (worker.executed, worker.sent) == ([worker.unit], [])
