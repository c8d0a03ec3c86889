"""Request replays of candidates: a message to a worker, and the result in Redis for a day.

Redis may lose it at any time; the user requests the replay again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kombu.exceptions import OperationalError as BrokerError
from pydantic import BaseModel, ConfigDict

from speciate.domain.candidate import ATTESTED, Evaluation, FailureKind
from speciate.domain.errors import ConflictError, EvaluatorUnavailableError, UnavailableError
from speciate.messaging.client_library import redis
from speciate.messaging.signals import COMMIT_CHANNEL
from speciate.ports.work import Queue
from speciate.schema.candidates import CandidateDetail

if TYPE_CHECKING:
    from celery import Celery

TASK: Final = "speciate.replay"
_EXPIRY_S: Final = 86_400
_REPEAT_S: Final = 60
"""Seconds before another request for the same candidate sends another message."""


class Replay(BaseModel):
    model_config = ConfigDict(frozen=True)

    requested_at: datetime
    done_at: datetime | None = None
    """Time of the result; None while pending."""
    rewards: dict[str, float] | None = None
    """Rewards by objective; None when the program failed."""
    failure: FailureKind | None = None
    detail: str = ""
    """Failure message of the program; untrusted text."""
    unavailable: str = ""
    """Why the evaluator could not run; empty if it did."""
    tier: str = ""
    """Isolation tier of the evaluation."""
    wall_s: float = 0.0

    def matches(self, candidate: CandidateDetail) -> bool:
        return (self.rewards, self.failure) == (candidate.first or candidate.rewards, candidate.failure)


def replayable(candidate: CandidateDetail) -> bool:
    """Return True if the service has the program and evaluated it, in its run or in the run whose result it reuses."""
    return bool(candidate.program) and candidate.tier not in {"", "none", ATTESTED}


@dataclass(frozen=True)
class ReplayQueue:
    _redis: redis.Redis
    _celery: Celery

    def request(self, candidate: CandidateDetail) -> None:
        """Request the replay of a candidate, unless one was requested in the last minute.

        ``ConflictError`` if its program was never evaluated, or is not stored any more.
        """
        if not replayable(candidate):
            pruned = "before its text was pruned" if candidate.tier not in {"", "none"} else "never"
            by = f"by {candidate.attested_by}, outside the service" if candidate.attested_by else pruned
            raise ConflictError(f"candidate {candidate.number} was evaluated {by}: there is nothing to replay.")
        try:
            if self._redis.set(f"{_key(candidate.id)}:requested", b"1", nx=True, ex=_REPEAT_S):
                self._store(candidate.id, Replay(requested_at=datetime.now(UTC)))
                self._celery.send_task(TASK, args=[str(candidate.id)], queue=Queue.EVALUATE.value, ignore_result=True)
        except (redis.RedisError, BrokerError, OSError) as error:
            raise UnavailableError(f"the replay could not be requested: {error}", remedy="Try again soon.") from error

    def latest(self, candidate_id: UUID) -> Replay | None:
        """Return the latest replay of a candidate, or None without one or without Redis."""
        try:
            stored = self._redis.get(_key(candidate_id))
        except redis.RedisError:
            return None
        return None if stored is None else Replay.model_validate_json(bytes(stored))  # type: ignore[arg-type]

    def perform(self, candidate: CandidateDetail, names: Sequence[str], evaluate: Callable[[], Evaluation]) -> None:
        """Store the result of a replay and wake the event streams of its run, whose own record does not change."""
        pending = self.latest(candidate.id)
        try:
            result = evaluate()
        except EvaluatorUnavailableError as error:
            outcome: dict[str, Any] = {"unavailable": str(error)}
        else:
            outcome = {
                "rewards": None if result.rewards is None else dict(zip(names, result.rewards, strict=True)),
                "failure": result.failure and result.failure.kind,
                "detail": f"{result.failure.reason}: {result.failure.detail}"[:4000] if result.failure else "",
                "tier": result.tier,
                "wall_s": result.wall_s,
            }
        now = datetime.now(UTC)
        self._store(candidate.id, Replay(requested_at=pending.requested_at if pending else now, done_at=now, **outcome))
        self._redis.delete(f"{_key(candidate.id)}:requested")
        self._redis.publish(COMMIT_CHANNEL, str(candidate.run_id))

    def _store(self, candidate_id: UUID, replay: Replay) -> None:
        self._redis.set(_key(candidate_id), replay.model_dump_json(), ex=_EXPIRY_S)


def _key(candidate_id: UUID) -> str:
    return f"speciate:replay:{candidate_id}"
