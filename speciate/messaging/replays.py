"""Replays of candidates that were asked for: a doorbell for a worker, and the outcome, for a day, in Redis.

What is here may be lost at any time; whoever wants to know asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import redis
from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from pydantic import BaseModel, ConfigDict

from speciate.domain.candidate import Evaluation, FailureKind
from speciate.domain.errors import ConflictError, UnavailableError
from speciate.messaging.signals import COMMIT_CHANNEL
from speciate.ports.records.candidates import CandidateDetail
from speciate.ports.work import Queue

TASK: Final = "speciate.replay"
_KEPT_S: Final = 86_400
_PATIENCE_S: Final = 60
"""How long nobody else rings for the same candidate."""


class Replay(BaseModel):
    """A replay: asked for, or done.

    Attributes:
        asked_at: When it was asked for.
        done_at: When its outcome came; None while a worker is waited for.
        rewards: Rewards by objective; None when the program failed.
        failure: How it failed.
        detail: Why, in words; never trust them where they are shown.
        tier: Containment that was in force.
        wall_s: Seconds on the clock.
    """

    model_config = ConfigDict(frozen=True)

    asked_at: datetime
    done_at: datetime | None = None
    rewards: dict[str, float] | None = None
    failure: FailureKind | None = None
    detail: str = ""
    tier: str = ""
    wall_s: float = 0.0

    def same(self, candidate: CandidateDetail) -> bool:
        """Whether it came out as the first time."""
        return self.rewards == candidate.rewards and self.failure == candidate.failure


def replayable(candidate: CandidateDetail) -> bool:
    """Whether the program was evaluated at all, in its own run or in the one whose result it has."""
    return candidate.tier not in {"", "none"}


@dataclass(frozen=True)
class ReplayQueue:
    """Asks for replays and keeps what came of them."""

    _redis: redis.Redis
    _celery: Celery

    def ask(self, candidate: CandidateDetail) -> None:
        """Have a worker replay a candidate; one that was asked for in the last minute is waited for.

        Raises:
            ConflictError: Its program was never evaluated.
            UnavailableError: Redis does not answer.
        """
        if not replayable(candidate):
            raise ConflictError(f"candidate {candidate.number} was never evaluated: there is nothing to replay.")
        try:
            if self._redis.set(f"{_key(candidate.id)}:asked", b"1", nx=True, ex=_PATIENCE_S):
                self._keep(candidate.id, Replay(asked_at=datetime.now(UTC)))
                self._celery.send_task(TASK, args=[str(candidate.id)], queue=Queue.EVALUATE.value, ignore_result=True)
        except (redis.RedisError, BrokerError, OSError) as error:
            raise UnavailableError(f"no worker can be asked for a replay: {error}", remedy="Try again soon.") from error

    def of(self, candidate_id: UUID) -> Replay | None:
        """Return the last replay of a candidate, or None where there is none, or Redis does not know."""
        try:
            kept = self._redis.get(_key(candidate_id))
        except redis.RedisError:
            return None
        return None if kept is None else Replay.model_validate_json(bytes(kept))  # type: ignore[arg-type]

    def book(self, candidate: CandidateDetail, names: Sequence[str], found: Evaluation) -> None:
        """Keep what came of a replay, and wake who looks at its run; the run's own record stays as it is."""
        asked = self.of(candidate.id)
        now = datetime.now(UTC)
        done = Replay(
            asked_at=asked.asked_at if asked else now,
            done_at=now,
            rewards=None if found.rewards is None else dict(zip(names, found.rewards, strict=True)),
            failure=None if found.failure is None else found.failure.kind,
            detail="" if found.failure is None else f"{found.failure.reason}: {found.failure.detail}"[:4000],
            tier=found.tier,
            wall_s=found.wall_s,
        )
        self._keep(candidate.id, done)
        self._redis.delete(f"{_key(candidate.id)}:asked")
        self._redis.publish(COMMIT_CHANNEL, str(candidate.run_id))

    def _keep(self, candidate_id: UUID, replay: Replay) -> None:
        self._redis.set(_key(candidate_id), replay.model_dump_json(), ex=_KEPT_S)


def _key(candidate_id: UUID) -> str:
    return f"speciate:replay:{candidate_id}"
