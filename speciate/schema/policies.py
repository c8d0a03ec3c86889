"""Records of policies, ensembles and answer statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from speciate.domain.policy import Policy, PolicyRole
from speciate.schema.base import HideableRecord, Record


class PolicyVersion(HideableRecord):
    """A policy version as registered."""

    id: UUID
    version: int
    digest: str
    created_at: datetime
    definition: Policy

    @property
    def name(self) -> str:
        """Name of the version: ``slug@version``."""
        return f"{self.definition.slug}@{self.version}"


class WeightedPolicyVersion(Record):
    """A policy version for a role of a run, with its weight in the ensemble."""

    version: PolicyVersion
    weight: float = 1.0


Ensembles = Mapping[PolicyRole, Sequence[WeightedPolicyVersion]]
"""Policies by role, if a role of the run has several; otherwise empty."""


class RunPolicies(NamedTuple):
    """The policies of a run.

    Attributes:
        policy: First proposer.
        mutator: First mutator; None if the proposers change parents.
        ensembles: All policies of all roles if a role has several.
    """

    policy: PolicyVersion
    mutator: PolicyVersion | None = None
    ensembles: Ensembles = MappingProxyType({})


class EnsembleMember(Record):
    """A member of a run's ensemble with its statistics.

    Attributes:
        asked: Answers received.
        judged: Answers evaluated.
        won: Answers that entered the archive.
        tokens: Tokens charged.
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
    """Answer statistics of a policy version over all of its runs.

    Attributes:
        surprisal: Mean negative log-probability of a token, an estimate of the entropy in nats; None if the endpoint
            reports no log-probabilities.
        tokens_a_rollout: Mean completion tokens of a rollout.
        cut: Rollouts that were cut off at the maximum length.
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
