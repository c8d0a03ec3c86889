"""Long evaluations in progress: which are listed, and what their texts may contain."""

from __future__ import annotations

import time
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
import redis

from evaluators.broker import Broker
from speciate.domain.problem import Problem
from speciate.messaging.active import ActiveEvaluations, active_evaluations
from speciate.ports.reporting import report_progress, reporting_to
from speciate.ports.work import WorkKind
from tests.support.runs import toy_problem


class Hashes:
    """The commands of Redis that the list uses; ``lost`` if it does not respond."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, bytes]] = {}
        self.lost = False

    def pipeline(self, *, transaction: bool) -> Hashes:
        assert not transaction
        return self

    def hset(self, key: str, field: str, value: str) -> None:
        self.found.setdefault(key, {})[field] = value.encode()

    def expire(self, key: str, seconds: int) -> None:
        assert seconds >= 30

    def execute(self) -> None:
        if self.lost:
            raise redis.ConnectionError

    def hdel(self, key: str, field: str) -> None:
        self.found.get(key, {}).pop(field, None)

    def hvals(self, key: str) -> list[bytes]:
        return [*self.found.get(key, {}).values()]


def lease(kind: WorkKind = WorkKind.EVALUATE, run_id: UUID | None = None) -> SimpleNamespace:
    payload = {"first": 4, "proposals": [1, 2], "number": 9}
    return SimpleNamespace(work_id=uuid4(), run_id=run_id or uuid4(), kind=kind, payload=payload)


def test_a_text_lists_an_evaluation_until_it_ends() -> None:
    client, held = Hashes(), lease()
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    with active.track(held):  # type: ignore[arg-type]
        assert active_evaluations(client, held.run_id) == ()  # type: ignore[arg-type]  # a short one costs nothing
        report_progress("h\x1balf\n")
        (found,) = active_evaluations(client, held.run_id)  # type: ignore[arg-type]
        assert (found.candidates, found.kind, found.text) == ((4, 5), "evaluate", "h alf")
    assert active_evaluations(client, held.run_id) == ()  # type: ignore[arg-type]
    report_progress("dropped")


def test_a_renewal_lists_a_silent_one_and_nothing_else() -> None:
    client, held, other = Hashes(), lease(WorkKind.CONFIRM), lease(WorkKind.GENERATE)
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    with active.track(held), active.track(other):  # type: ignore[arg-type]
        active.renew(held)  # type: ignore[arg-type]
        active.renew(other)  # type: ignore[arg-type]
        (found,) = active_evaluations(client, held.run_id)  # type: ignore[arg-type]
        assert (found.candidates, found.text) == ((9, 9), "")
        assert active_evaluations(client, other.run_id) == ()  # type: ignore[arg-type]


def test_one_of_a_dead_worker_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    client, held = Hashes(), lease()
    active = ActiveEvaluations(client, expiry_s=30)  # type: ignore[arg-type]
    with active.track(held):  # type: ignore[arg-type]
        report_progress("half")
        now = time.time()
        monkeypatch.setattr("speciate.messaging.active.time.time", lambda: now + 31)
        assert active_evaluations(client, held.run_id) == ()  # type: ignore[arg-type]


def test_an_evaluation_goes_on_without_redis() -> None:
    client, held = Hashes(), lease()
    client.lost = True
    with ActiveEvaluations(client, expiry_s=30).track(held):  # type: ignore[arg-type]
        report_progress("half")


SCRIPT = """
def evaluate(candidate, context):
    context.progress("first")
    context.progress("<script>\\x1b[31m" + 1000 * "x")
    return {"found": 1.0}
"""


def test_a_script_reports_texts_which_are_cut() -> None:
    problem = Problem.model_validate(
        toy_problem().definition()
        | {
            "kind": "evaluator",
            "cases": [],
            "evaluator": SCRIPT,
            "objectives": [{"name": "found"}],
            "targets": [{"name": "t", "rule": "found >= 1", "unlock": True}],
            "weights": None,
        }
    )
    broker, texts = Broker("unsafe"), list[str]()
    try:
        with reporting_to(texts.append):
            (found,) = broker.evaluate(problem, ["x = 1"], seeds=[1])
    finally:
        broker.close()
    assert found.rewards == (1.0,)
    assert (texts[0], len(texts), len(texts[1])) == ("first", 2, 200)
