"""Workers whose requests the service limits: they wait, and keep what they hold."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from speciate.client.evaluation_worker import EvaluationWorker, retried
from speciate.domain.errors import TooManyRequestsError


def test_leases_are_renewed_after_a_refused_renewal() -> None:
    leases, renewals, renewed = [SimpleNamespace(id=uuid4(), lease=uuid4())], [], threading.Event()

    class Evaluations:
        def acquire(self, **_: Any) -> list[SimpleNamespace]:
            return [leases.pop()] if leases else []

        def renew(self, _: object, lease_s: float) -> None:
            renewals.append(lease_s)
            if len(renewals) == 1:
                raise TooManyRequestsError("slow down", retry_after_s=1.0)
            renewed.set()

        def submit_all(self, _: object) -> list[SimpleNamespace]:
            return [SimpleNamespace(status="booked")]

    def evaluate(_: object) -> dict[str, float | None]:
        assert renewed.wait(60)
        return {"x": 1.0}

    results: list[object] = []
    worker = EvaluationWorker(
        SimpleNamespace(evaluations=Evaluations()),  # type: ignore[arg-type]
        evaluate,
        lease_s=1.0,
        report=lambda _, result, __: results.append(result["rewards"]),
    )
    assert worker.run_until(most=1) == 1
    assert results == [{"x": 1.0}]


def test_a_refused_request_is_sent_again_when_the_service_accepts_it() -> None:
    waits: list[float | None] = []
    outcomes: list[Exception | str] = [TooManyRequestsError("slow down", retry_after_s=7.0), "done"]

    class Stopping(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            return False

    def call() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert retried(call, Stopping()) == "done"
    assert waits == [7.0]
