"""Score seed programs on an evaluate worker while a request waits.

Redis carries the definition to the worker and the result back; both expire with the request.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from kombu.exceptions import OperationalError as BrokerError

from speciate.domain.candidate import Evaluation
from speciate.domain.capabilities import IMAGE_CAPABILITIES, missing_capabilities
from speciate.domain.errors import EvaluatorUnavailableError, InvalidInputError, UnavailableError
from speciate.domain.known_languages import LANGUAGE_PROGRAMS
from speciate.domain.problem import Problem
from speciate.messaging.client_library import redis
from speciate.messaging.presence import present_workers
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.work import Queue
from speciate.runs.seed_noise import noise_advice
from speciate.runs.silent_failure import describe_seed_failure
from speciate.schema.runs import WorkerProcess

if TYPE_CHECKING:
    from celery import Celery

TASK: Final = "speciate.check_seed"
LIMIT_S: Final = 120.0
"""Longest wait for a result, in seconds."""
_POLL_S: Final = 2
"""Seconds of one blocking read; less than the timeout of the socket."""
_MARGIN_S: Final = 2.0
"""Seconds that a worker keeps for its own overhead."""
_NOISE_S: Final = 4.0
"""Most time of the evaluations that measure noise, in seconds."""
_PASS_ON_S: Final = 0.2
_MAX_TEXT: Final = 20_000
_MAX_CHECKS: Final = 3
"""Checks of one process at the same time. Each holds a thread and, in Redis, a definition."""
_SKIP: Final = """skip the check (--no-check, or "check": false)"""


class SeedFailsError(InvalidInputError, slug="seed-fails", title="The seed program cannot be scored"):
    """The seed program of a problem cannot be scored; the message quotes untrusted text."""


@dataclass(frozen=True)
class SeedChecks:
    """Requests that seed programs be scored, and scores them on a worker."""

    _redis: redis.Redis
    _celery: Celery
    limit_s: float = LIMIT_S
    """Longest wait for a result, in seconds."""
    _slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MAX_CHECKS))

    def require(self, problem: Problem) -> str:
        """Wait until a worker has scored the seed program of a problem, and return its advice on noise. Blocks.

        A problem without one passes, and one without sandboxed evaluation.

        Raises:
            SeedFailsError: The seed program or the evaluator fails.
            UnavailableError: No worker evaluates candidates, none has a result in time, or Redis does not respond.
        """
        if not problem.seed_program or problem.cascade[0].external:
            return ""
        if not self._slots.acquire(blocking=False):
            raise UnavailableError(
                f"this process already waits for {_MAX_CHECKS} seed programs.", remedy=f"Try again soon, or {_SKIP}."
            )
        try:
            self._require_worker(problem)
            result = self._result_of(problem)
        except (redis.RedisError, BrokerError, OSError) as error:
            raise UnavailableError(f"the seed program was not scored: {error}.", remedy="Try again soon.") from error
        finally:
            self._slots.release()
        if (reason := result.get("unavailable")) is not None:
            raise UnavailableError(str(reason), remedy=f"Start another evaluate worker, or {_SKIP}.")
        if (failure := result.get("failure")) is not None:
            raise SeedFailsError(f"{failure}\nCorrect the problem and add it again, or {_SKIP}.")
        return str(result.get("noise") or "")

    def perform(
        self, key: str, evaluator: EvaluatorClient, *, worker: str = "", can: Callable[[Problem], bool] = lambda _: True
    ) -> None:
        """Score the seed program of a request on this worker, unless the request has ended.

        If ``can`` returns False for the problem, another worker than ``worker`` gets the request.
        """
        definition: Any = self._redis.get(key)
        if definition is None:
            return
        problem = Problem.model_validate_json(definition)
        if not can(problem):
            self._pass_on(key, problem, worker)
            return
        left_s = float(self._redis.pttl(key)) / 1000 - _MARGIN_S
        if self._redis.getdel(key) is None or left_s <= 0:
            return
        result: dict[str, str | None]
        try:
            (evaluation,) = evaluator.evaluate(problem, [problem.seed_program], seeds=[0], timeout_s=left_s)
        except EvaluatorUnavailableError as error:
            result = {"unavailable": str(error)}
        else:
            late = evaluation.failure is not None and evaluation.failure.reason == "batch_deadline"
            text = describe_seed_failure(problem, evaluation)
            result = {"unavailable": self._late(problem)} if late else {"failure": text and text[:_MAX_TEXT]}
            if not late and text is None:
                result["noise"] = _noise(problem, evaluation, evaluator)
        self._answer(key, result)

    def _answer(self, key: str, result: dict[str, str | None]) -> None:
        self._redis.rpush(_result_key(key), json.dumps(result))
        self._redis.expire(_result_key(key), round(self.limit_s))

    def _pass_on(self, key: str, problem: Problem, worker: str) -> None:
        """Send a request again if another worker may have what this one lacks, else answer it.

        Workers announce the programs of known languages only, so each may get the request once.
        """
        unable = f"{key}:lacking"
        self._redis.sadd(unable, worker)
        self._redis.expire(unable, round(self.limit_s))
        lacking: Any = self._redis.smembers(unable)
        names = {each.decode() for each in lacking}
        if all(each.name in names for each in self._workers()):
            if self._redis.getdel(key) is not None:
                missing = " and ".join(sorted(problem.worker_capabilities))
                self._answer(key, {"unavailable": f"no evaluate worker ({', '.join(sorted(names))}) has {missing}."})
            return
        time.sleep(_PASS_ON_S)  # this slot has nothing else to do
        self._send(key)

    def _workers(self) -> list[WorkerProcess]:
        return [worker for worker in present_workers(self._redis) if Queue.EVALUATE.value in worker.queues]

    def _send(self, key: str) -> None:
        self._celery.send_task(TASK, args=[key], queue=Queue.EVALUATE.value, ignore_result=True)

    def _require_worker(self, problem: Problem) -> None:
        workers = self._workers()
        # Workers announce the programs of known languages; whether they have others they say when they evaluate.
        required = problem.worker_capabilities & (LANGUAGE_PROGRAMS | IMAGE_CAPABILITIES)
        missing = missing_capabilities(
            required, [{*worker.tools} for worker in workers], {worker.tier for worker in workers}
        )
        if workers and missing is not None:
            what, remedy = missing
            raise UnavailableError(
                f"no evaluate worker has {what}, so the seed program cannot be scored.", remedy=f"{remedy}, or {_SKIP}."
            )
        if not workers:
            raise UnavailableError(
                "no worker evaluates candidates, so the seed program cannot be scored.",
                remedy=f"Start an evaluate worker, or {_SKIP}.",
            )

    def _result_of(self, problem: Problem) -> dict[str, Any]:
        key, deadline = f"speciate:seed-check:{uuid4()}", time.monotonic() + self.limit_s
        self._redis.set(key, json.dumps(problem.model_dump(mode="json")), px=round(self.limit_s * 1000))
        try:
            self._send(key)
            while time.monotonic() < deadline:
                result: Any = self._redis.blpop([_result_key(key)], timeout=_POLL_S)
                if result is not None:
                    return dict(json.loads(result[1]))
                self._require_worker(problem)
        finally:
            self._redis.delete(key)
        return {"unavailable": self._late(problem)}

    def _late(self, problem: Problem) -> str:
        late = f"no worker scored the seed program within {self.limit_s:.0f} s: all are busy, or scoring takes longer."
        what = "install its packages" if problem.requirements else "pull its image" if problem.image else ""
        return f"{late} A worker may still {what}, which happens once: add the problem again soon." if what else late


def _noise(problem: Problem, first: Evaluation, evaluator: EvaluatorClient) -> str:
    """Return advice by two more evaluations, one with the seed of the first; empty if they are slow or fail."""
    if 2 * first.wall_s > _NOISE_S or problem.external_stage is not None:
        return ""
    try:
        again = evaluator.evaluate(problem, [problem.seed_program] * 2, seeds=[0, 1], timeout_s=2 * _NOISE_S)
    except EvaluatorUnavailableError:
        return ""
    return "" if any(each.rewards is None for each in again) else noise_advice(problem, (first, *again))


def _result_key(key: str) -> str:
    return f"{key}:result"
