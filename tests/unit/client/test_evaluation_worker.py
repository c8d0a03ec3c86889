"""Workers whose requests the service limits: they wait, and keep what they hold."""

from __future__ import annotations

import json
import re
import threading
import time
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from service.api.evaluations import ReportedEvaluation
from service.strict_json import require_storable
from speciate.client.evaluation_worker import (
    BrokenEvaluatorError,
    CandidateFailedError,
    EvaluationWorker,
    Rewards,
    retried,
)
from speciate.domain.candidate import REFUSED_REWARDS
from speciate.domain.errors import ConfigurationError, TooManyRequestsError, UnavailableError
from speciate.schema.evaluations import Acceptance


def test_leases_are_renewed_after_a_refused_renewal() -> None:
    leases, renewals, renewed = [SimpleNamespace(id=uuid4(), lease=uuid4())], [], threading.Event()

    class Evaluations:
        def acquire(self, **_: Any) -> list[SimpleNamespace]:
            return [leases.pop()] if leases else []

        def renew(self, leases: list[SimpleNamespace], lease_s: float) -> list[SimpleNamespace]:
            renewals.append(lease_s)
            if len(renewals) == 1:
                raise TooManyRequestsError("slow down", retry_after_s=1.0)
            if len(renewals) == 2:
                raise ConfigurationError("a page of a proxy")
            renewed.set()
            return [SimpleNamespace(lease_until="soon") for _ in leases]

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


class _Queue:
    """Leases candidates and refuses all rewards."""

    def __init__(self, count: int, first: int = 2) -> None:
        numbers = range(first + count - 1, first - 1, -1)
        self.leases = [SimpleNamespace(id=uuid4(), lease=uuid4(), number=n, problem="sum@1") for n in numbers]
        self.returned: list[int] = []

    def acquire(self, **_: Any) -> list[SimpleNamespace]:
        return [self.leases.pop()] if self.leases else []

    def submit_all(self, bodies: list[dict[str, Any]]) -> list[SimpleNamespace]:
        refused = Acceptance.REFUSED if "rewards" in bodies[0] else Acceptance.BOOKED
        return [SimpleNamespace(status=refused, reason="x: not finite")]

    def renew(self, leases: list[SimpleNamespace], lease_s: float) -> list[SimpleNamespace]:
        self.returned += [each.number for each in leases if lease_s == 0]
        return [SimpleNamespace(lease_until="soon") for _ in leases]


def test_a_worker_is_idle_from_the_end_of_an_evaluation() -> None:
    queue, begun = _Queue(2), time.monotonic()
    first, second = queue.leases[1], queue.leases[0]
    queue.leases = [first]

    def acquire(**_: Any) -> list[SimpleNamespace]:
        time.sleep(0.05)
        if first not in queue.leases and time.monotonic() - begun > 1.0:
            queue.leases = [second] if second.number not in scored else []
        return [queue.leases.pop()] if queue.leases else []

    scored: list[int] = []

    def slow(candidate: Any) -> Any:
        time.sleep(0.8 if candidate is first else 0.0)
        scored.append(candidate.number)
        return {"x": 1.0}

    queue.acquire = acquire  # type: ignore[method-assign]
    queue.submit_all = lambda _: [SimpleNamespace(status=Acceptance.BOOKED)]  # type: ignore[method-assign]
    worker = EvaluationWorker(SimpleNamespace(evaluations=queue), slow)  # type: ignore[arg-type]
    assert worker.run_until(idle_s=0.5) == 2


def _raises(_: object) -> dict[str, float | None]:
    raise RuntimeError("boom")


def _returns_nothing(_: object) -> Any:
    return None


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_raises, r"RuntimeError: boom \(.*test_evaluation_worker\.py:\d+\)\. Nothing .* raise CandidateFailedError"),
        (_returns_nothing, r"TypeError: _returns_nothing\(\) returned None, no rewards by objective"),
        (lambda _: Rewards(None), "returned None, no rewards"),  # type: ignore[arg-type]
        (lambda _: [1.0], r"returned \[1\.0\], no rewards"),
    ],
)
@pytest.mark.parametrize(("first", "booked"), [(1, 0), (2, 4)])
def test_a_function_that_never_works_stops_the_worker(function: Any, message: str, first: int, booked: int) -> None:
    queue, reported = _Queue(20, first), []
    worker = EvaluationWorker(
        SimpleNamespace(evaluations=queue),  # type: ignore[arg-type]
        function,
        report=lambda candidate, *_: reported.append(candidate.number),
    )
    with pytest.raises(BrokenEvaluatorError) as broken:
        worker.run_until(most=20)
    assert re.search(message, str(broken.value)), str(broken.value)
    assert (len(reported), queue.returned[0]) == (booked, first + booked)


def test_a_bad_candidate_and_an_exception_after_a_good_one_stop_no_worker() -> None:
    def evaluate(candidate: Any) -> dict[str, float | None]:
        if candidate.number == 1:
            raise CandidateFailedError("imports os", kind="rejected", reason="raised")
        raise RuntimeError("boom")

    results: list[Any] = []
    worker = EvaluationWorker(
        SimpleNamespace(evaluations=_Queue(7, 1)),  # type: ignore[arg-type]
        evaluate,
        report=lambda _, result, __: results.append(result["failure"]["detail"]),
        worked=True,
    )
    assert worker.run_until(most=7) == 7
    assert results == ["imports os", *["RuntimeError: boom"] * 6]


def _submitted(function: Any) -> dict[str, Any]:
    """Return what the worker sends to the service for a result of a function."""
    bodies: list[Any] = []
    queue = _Queue(2)
    queue.submit_all = lambda sent: bodies.extend(sent) or [SimpleNamespace(status="booked")]  # type: ignore[method-assign]
    EvaluationWorker(SimpleNamespace(evaluations=queue), function).run_until(most=1)  # type: ignore[arg-type]
    body: dict[str, Any] = json.loads(json.dumps(bodies[0]))
    return body


def test_numbers_of_array_libraries_are_rewards() -> None:
    rewards = _submitted(lambda _: {"x": np.float32(0.5), "y": np.array(2), "z": object()})["rewards"]
    assert (rewards["x"], rewards["y"], rewards["z"][:7]) == (0.5, 2.0, "<object")


@pytest.mark.parametrize(
    ("notes", "name", "expected"),
    [
        ({"stdout": "3 of 4"}, "stdout", "3 of 4"),
        ({"Test output": "3 of 4"}, "Test_output", "Test output: 3 of 4"),
        ({"a-b": "1", "a_b": "2"}, "a_b", "a-b: 1\n2"),
        ({"": "1"}, "_", ": 1"),
        ({"x" * 90: "1"}, "x" * 80, "x" * 90 + ": 1"),
        ({"out": "a\0b\udce9", "é\0": "1"}, "out", "a\ufffdb\ufffd"),
        ({"log": "a" * 70_000 + "end"}, "log", r"a+\n… \d+ characters cut …\na+end"),
        ({f"case_{i}": "ok" for i in range(20)}, "case_15", "ok\n… 4 more notes .* out: case_16, .*, case_19"),
        ({f"case_{i}": "x" * 60_000 for i in range(90)}, "case_15", r"(?s)x+\n… \d+ .*cut …\nx+\n… 74 more notes .*"),
    ],
)
def test_notes_of_any_kind_cost_no_rewards(notes: dict[str, str], name: str, expected: str) -> None:
    sent = _submitted(lambda _: Rewards({"x": 1.0}, notes))
    require_storable(sent)
    booked = ReportedEvaluation.model_validate_json(json.dumps(sent))
    assert booked.rewards == {"x": 1.0}
    assert re.fullmatch(expected, booked.feedback[name])


@pytest.mark.parametrize(("reason", "sent_as"), [("timed out: 3 s", "timed_out__3_s"), ("worker lost", "external")])
def test_failures_of_any_kind_are_reported(reason: str, sent_as: str) -> None:
    def fails(_: object) -> None:
        raise CandidateFailedError("stopped at \0\udce9", reason=reason)

    sent = _submitted(fails)
    require_storable(sent)
    report = ReportedEvaluation.model_validate_json(json.dumps(sent)).failure
    assert report is not None
    assert (report.reason, report.detail) == (sent_as, "stopped at \ufffd\ufffd")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_program_that_ends_its_process_fails(error: type[BaseException]) -> None:
    """Importing a candidate may raise anything; only the main thread's Ctrl-C is the user's."""

    def evaluate(_: object) -> dict[str, float | None]:
        raise error("bye")

    results: list[Any] = []
    worker = EvaluationWorker(
        SimpleNamespace(evaluations=_Queue(2)),  # type: ignore[arg-type]
        evaluate,
        report=lambda _, result, __: results.append(result["failure"]["detail"]),
    )
    assert worker.run_until(most=2) == 2
    assert results == [f"{error.__name__}: bye"] * 2


def test_an_evaluator_that_scored_before_is_not_taken_for_broken() -> None:
    results: list[Any] = []
    worker = EvaluationWorker(
        SimpleNamespace(evaluations=_Queue(6)),  # type: ignore[arg-type]
        lambda _: {"x": float("inf")},
        report=lambda _, result, __: results.append(result["failure"]["reason"]),
        worked=True,
    )
    assert worker.run_until(most=6) == 6
    assert results == [REFUSED_REWARDS] * 6


def test_time_without_the_service_counts_as_idle() -> None:
    class Evaluations:
        def acquire(self, **_: Any) -> list[SimpleNamespace]:
            raise UnavailableError("away")

    worker = EvaluationWorker(SimpleNamespace(evaluations=Evaluations()), lambda _: {})  # type: ignore[arg-type]
    guard = threading.Timer(60, worker.stop)
    guard.start()
    assert worker.run_until(idle_s=0.1) == 0
    assert guard.is_alive()
    guard.cancel()


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


def test_a_candidate_that_fails_because_of_the_stop_is_given_back() -> None:
    lease, renewals = SimpleNamespace(id=uuid4(), lease=uuid4()), []

    class Evaluations:
        def acquire(self, **_: Any) -> list[SimpleNamespace]:
            return [lease]

        def renew(self, leases: list[SimpleNamespace], lease_s: float) -> list[SimpleNamespace]:
            renewals.extend((each.id, lease_s) for each in leases)
            return [SimpleNamespace(lease_until=None) for _ in leases]

    def evaluate(_: object) -> dict[str, float | None]:
        worker.stop()
        raise RuntimeError("the sandbox was closed")

    worker = EvaluationWorker(SimpleNamespace(evaluations=Evaluations()), evaluate)  # type: ignore[arg-type]
    worker.run_until()
    assert (lease.id, 0) in renewals


def test_a_candidate_whose_lease_the_service_ended_is_given_up() -> None:
    waiting = [SimpleNamespace(id=uuid4(), lease=uuid4(), number=2, problem="sum@1") for _ in range(2)]
    kept, ended = waiting

    class Evaluations:
        def acquire(self, **_: Any) -> list[SimpleNamespace]:
            return [waiting.pop()] if waiting else []

        def renew(self, leases: list[SimpleNamespace], lease_s: float) -> list[SimpleNamespace]:
            return [SimpleNamespace(lease_until=None if each is ended else "soon") for each in leases]

        def submit_all(self, bodies: list[dict[str, Any]]) -> list[SimpleNamespace]:
            submitted.extend(body["lease"] for body in bodies)
            return [SimpleNamespace(status="booked")]

    submitted: list[str] = []

    def evaluate(lease: Any) -> dict[str, float | None]:
        if lease is ended:
            deadline = time.monotonic() + 60
            while not worker.gave_up(lease):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            raise ValueError("interrupted")
        return {"x": 1.0}

    worker = EvaluationWorker(SimpleNamespace(evaluations=Evaluations()), evaluate, lease_s=1.0)  # type: ignore[arg-type]
    worker.run_until(most=2)
    assert submitted == [str(kept.lease)]
