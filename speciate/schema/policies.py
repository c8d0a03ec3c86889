"""Records of policies, ensembles and answer statistics."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from speciate.domain.policy import Policy, PolicyRole
from speciate.schema.base import HideableRecord, Record
from speciate.schema.results import RunResult


class PolicyVersion(HideableRecord):
    """A policy version as registered."""

    id: UUID
    version: int
    digest: str
    created_at: datetime
    definition: Policy
    result: RunResult | None = None
    """The result of its newest run that has one; only in lists, and None there before the first."""

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
    policy: PolicyVersion
    """First proposer."""
    mutator: PolicyVersion | None = None
    """First mutator; None if the proposers change parents."""
    ensembles: Ensembles = MappingProxyType({})
    """All policies of all roles if a role has several."""


class EnsembleMember(Record):
    role: PolicyRole
    policy_id: UUID
    policy: str
    policy_version: int
    weight: float
    asked: int = 0
    """Answers received."""
    judged: int = 0
    """Answers evaluated."""
    won: int = 0
    """Answers that entered the archive."""
    tokens: int = 0
    """Tokens charged."""


class PolicyFigures(Record):
    """Answer statistics of a policy version over all of its runs."""

    runs: int
    evaluated: int
    failed: int
    duplicates: int
    tokens: int
    unlocked: int
    """Runs that unlocked their problem."""
    rollouts: int
    surprisal: float | None
    """Mean negative log-probability of a token, an estimate of the entropy in nats; None if the endpoint reports no
    log-probabilities.
    """
    tokens_a_rollout: float | None
    """Mean completion tokens of a rollout."""
    latency_s: float | None
    cut: int
    """Rollouts that were cut off at the maximum length."""
