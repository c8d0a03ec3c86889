"""Load the immutable parts of a run: problem, policies, ensembles and spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import Repeat
from speciate.domain.ensemble import BanditArm
from speciate.domain.errors import NotFoundError
from speciate.domain.objective import Objective
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.ranking import Ranking
from speciate.domain.reward import RewardSpace
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedProgram
from speciate.domain.target import Target
from speciate.ports.work import RunContext, WeightedPolicy
from speciate.runs.ensemble import COUNTS, arm_key, read_arms
from speciate.schema.policies import EnsembleMember, Ensembles
from speciate.schema.runs import RankedCandidate
from speciate.storage.lookup import read_stored
from speciate.storage.tables import run_policies, run_seeds

_CONTEXT = sa.text(
    "SELECT r.project_id, r.spec, r.policy_id, r.mutator_id, p.definition AS problem, a.definition AS proposer,"
    " a.version, b.definition AS mutator, (SELECT jsonb_agg(jsonb_build_array(s.program, s.origin) ORDER BY s.ord)"
    " FROM run_seeds s WHERE s.run_id = r.id) AS seeds"
    " FROM runs r JOIN problems p ON p.id = r.problem_id JOIN policies a ON a.id = r.policy_id"
    " LEFT JOIN policies b ON b.id = r.mutator_id WHERE r.id = :id"
)

_MEASURES = sa.text(
    "SELECT p.definition -> 'objectives' AS objectives, p.definition -> 'targets' AS targets,"
    " p.definition -> 'weights' AS weights"
    " FROM runs r JOIN problems p ON p.id = r.problem_id WHERE r.id = :id"
)


@dataclass(frozen=True)
class ScoringSchema:
    """The part of a run's problem that candidate records need; immutable.

    Attributes:
        ranking: The order of candidates.
    """

    ranking: Ranking

    @property
    def space(self) -> RewardSpace:
        """The objectives."""
        return self.ranking.space

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets, in declared order."""
        return tuple(target.name for target in self.ranking.targets)

    def named(self, mask: int) -> tuple[str, ...]:
        """Return the names of the targets in a bit mask."""
        return tuple(name for i, name in enumerate(self.targets) if mask >> i & 1)

    def by_name(self, rewards: Sequence[float]) -> dict[str, float]:
        """Return a raw reward vector of shape (d,) by objective."""
        return dict(zip(self.space.names, rewards, strict=True))

    def refutations(self, mask: int, rewards: Sequence[float], repeats: Sequence[Repeat]) -> dict[str, str]:
        """Return what was measured, as text, by name of each target in the bit mask of the refuted ones."""
        return {
            name: self.ranking.refutation(i, rewards, repeats) for i, name in enumerate(self.targets) if mask >> i & 1
        }

    def ranked(self, row: sa.Row[Any]) -> RankedCandidate:
        """Return the candidate of a row with ``id, number, rewards, scalar, met``."""
        rewards, targets = self.by_name(row.rewards), self.named(row.met)
        return RankedCandidate(id=row.id, number=row.number, rewards=rewards, targets=targets, scalar=row.scalar)

    @property
    def weighted(self) -> bool:
        """True if the problem declares weights, so that candidates have a scalar."""
        return self.ranking.weights is not None


def load_scoring_schema(connection: sa.Connection, run_id: UUID) -> ScoringSchema:
    """Return the objectives and targets of a run; raises as ``load_context`` does."""
    row = connection.execute(_MEASURES, {"id": run_id}).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no run {run_id}.")
    space = RewardSpace(tuple(read_stored(Objective, objective) for objective in row.objectives))
    targets = tuple(read_stored(Target, target) for target in row.targets)
    return ScoringSchema(Ranking(space, targets, space.weight_vector(row.weights)))


def load_context(connection: sa.Connection, run_id: UUID) -> RunContext:
    """Return a run's problem, policies and spec.

    Raises:
        NotFoundError: No such run exists.
    """
    row = connection.execute(_CONTEXT, {"id": run_id}).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no run {run_id}.")
    return RunContext(
        run_id=run_id,
        project_id=row.project_id,
        problem=read_stored(Problem, row.problem),
        proposer=read_stored(Policy, row.proposer),
        proposer_id=row.policy_id,
        spec=read_stored(RunSpec, row.spec),
        mutator=None if row.mutator is None else read_stored(Policy, row.mutator),
        mutator_id=row.mutator_id,
        ensembles=read_shares(connection, run_id),
        proposer_version=row.version,
        seeds=tuple(SeedProgram(program, origin) for program, origin in row.seeds or ()),
    )


SHARES: Final = (
    "(SELECT jsonb_agg(jsonb_build_object('role', e.role, 'policy_id', e.policy_id, 'policy', q.slug, 'policy_version',"
    " q.version, 'weight', e.weight) ORDER BY e.role DESC, e.ord) FROM run_policies e"
    " JOIN policies q ON q.id = e.policy_id WHERE e.run_id = r.id)"
)
"""SQL: the ensemble of run ``r`` as JSON for ``members``, proposers first."""

NAMES: Final = (
    "CASE WHEN r.spec -> 'learning' IS NULL THEN"
    " ARRAY(SELECT DISTINCT q.slug || '@' || q.version FROM run_policies e JOIN policies q ON q.id = e.policy_id"
    " OR e.role = 'external' AND q.id IN (r.policy_id, r.mutator_id) WHERE e.run_id = r.id ORDER BY 1)"
    " ELSE ARRAY(SELECT q.slug || '@' || q.version || ' learning' FROM policies q WHERE q.id = r.policy_id) END"
)
"""SQL: the policy names of run ``r`` if it has an ensemble, proposals of another policy or learns, else empty.

What a policy reached while it learned counts for no version of it.
"""

ALONE: Final = "(r.spec -> 'learning' IS NULL AND NOT EXISTS (SELECT FROM run_policies e WHERE e.run_id = r.id))"
"""SQL: true if no other policy than that of run ``r`` and its mutator took part, nor versions that it learned."""

MUTATOR: Final = "nullif(r.mutator_id, r.policy_id)"
"""SQL: the mutator of run ``r``; NULL if it is the policy itself."""

_READ = sa.text(
    "SELECT e.role, e.policy_id, e.weight, a.definition FROM run_policies e JOIN policies a ON a.id = e.policy_id"
    " WHERE e.run_id = :id AND e.role <> 'external' ORDER BY e.role, e.ord"
)


def insert_shares(connection: sa.Connection, run_id: UUID, ensembles: Ensembles) -> None:
    """Store the ensembles of a new run."""
    rows = [
        {"run_id": run_id, "role": role.value, "ord": ord_, "policy_id": share.version.id, "weight": share.weight}
        for role, shares in ensembles.items()
        for ord_, share in enumerate(shares)
    ]
    if rows:
        connection.execute(sa.insert(run_policies), rows)


def insert_seeds(connection: sa.Connection, run_id: UUID, seeds: Sequence[SeedProgram]) -> None:
    """Store the seed programs of a new run."""
    rows = [
        {"run_id": run_id, "ord": ord_, "program": seed.program, "origin": seed.origin}
        for ord_, seed in enumerate(seeds)
    ]
    if rows:
        connection.execute(sa.insert(run_seeds), rows)


_RECORD_PROPOSER = sa.text(
    "INSERT INTO run_policies (run_id, role, ord, policy_id, weight) SELECT :id, 'external', count(*), :policy, 1"
    " FROM run_policies WHERE run_id = :id AND role = 'external'"
    " HAVING NOT EXISTS (SELECT FROM runs WHERE id = :id AND policy_id = :policy) AND NOT EXISTS"
    " (SELECT FROM run_policies WHERE run_id = :id AND role = 'external' AND policy_id = :policy)"
)


def record_proposer(connection: sa.Connection, run_id: UUID, policy_id: UUID) -> None:
    """Count a proposer from outside among the policies of a run, so that no other policy is credited with its unlocks.

    Args:
        connection: A transaction that holds the lock of the run's progress.
        run_id: The run.
        policy_id: The proposer's policy. Nothing changes if it is the run's own.
    """
    connection.execute(_RECORD_PROPOSER, {"id": run_id, "policy": policy_id})


def read_shares(connection: sa.Connection, run_id: UUID) -> dict[PolicyRole, tuple[WeightedPolicy, ...]]:
    """Return the ensembles of a run by role."""
    found: dict[PolicyRole, tuple[WeightedPolicy, ...]] = {}
    for row in connection.execute(_READ, {"id": run_id}):
        share = WeightedPolicy(read_stored(Policy, row.definition), row.policy_id, row.weight)
        role = PolicyRole(row.role)
        found[role] = (*found.get(role, ()), share)
    return found


def members(shares: Sequence[dict[str, Any]], counted: Mapping[str, dict[str, Any]]) -> tuple[EnsembleMember, ...]:
    """Return the statistics of ensemble members from ``SHARES`` and arms; without mutators, proposers mutate."""
    of_role = {role: [s for s in shares if s["role"] == role.value] for role in (PolicyRole.PROPOSE, PolicyRole.MUTATE)}
    arms = read_arms(counted)
    return tuple(
        EnsembleMember(
            **share | {"role": role},
            **{name: getattr(arms.get(arm_key(role, i), BanditArm()), name) for name in COUNTS},
        )
        for role, mine in of_role.items()
        for i, share in enumerate(mine or of_role[PolicyRole.PROPOSE])
    )
