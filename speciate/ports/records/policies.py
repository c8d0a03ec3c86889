"""Policies, and how they answer."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from speciate.domain.policy import Policy, PolicyRole
from speciate.ports.records.base import Record


class PolicyVersion(Record):
    """A policy version as registered."""

    id: UUID
    version: int
    digest: str
    created_at: datetime
    definition: Policy

    @property
    def name(self) -> str:
        """``slug@version``, what it is called wherever one version is meant."""
        return f"{self.definition.slug}@{self.version}"


class WeightedPolicyVersion(Record):
    """A policy version for a role of a run, with its weight among the others."""

    version: PolicyVersion
    weight: float = 1.0


class EnsembleMember(Record):
    """A policy of a run that has several for a role, and what it did so far.

    Attributes:
        asked: Answers booked.
        judged: Those that have been settled.
        won: Those that took a place in the archive.
        tokens: Tokens it was charged.
    """

    role: PolicyRole
    policy_id: UUID
    policy: str
    policy_version: int
    weight: float
    asked: int = 0
    judged: int = 0
    won: int = 0
    tokens: int = 0


class PolicyFigures(Record):
    """How a policy version answers, over all of its runs.

    Attributes:
        surprisal: Mean negative log-probability of its tokens, an estimate of its entropy in nats; None where the
            endpoint gives no log-probabilities.
        tokens_a_rollout: Mean completion tokens.
        cut: Rollouts that ended at the longest length.
        unlocked: Runs that unlocked their problem.
    """

    runs: int
    evaluated: int
    failed: int
    duplicates: int
    tokens: int
    unlocked: int
    rollouts: int
    surprisal: float | None
    tokens_a_rollout: float | None
    latency_s: float | None
    cut: int
