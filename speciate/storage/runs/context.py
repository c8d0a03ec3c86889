"""Load the immutable parts of a run: problem, policies, ensembles and spec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import Repeat
from speciate.domain.ensemble import BanditArm
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
from speciate.storage.lookup import read_stored, require_row
from speciate.storage.statements import Statements

SQL = Statements(__file__)


@dataclass(frozen=True)
class ScoringSchema:
    """The part of a run's problem that candidate records need; immutable."""

    ranking: Ranking

    @property
    def space(self) -> RewardSpace:
        return self.ranking.space

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(target.name for target in self.ranking.targets)

    def named(self, mask: int) -> tuple[str, ...]:
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
        return self.ranking.weights is not None


def load_scoring_schema(connection: sa.Connection, run_id: UUID) -> ScoringSchema:
    """Return the objectives and targets of a run; raises as ``load_context`` does."""
    row = require_row(connection.execute(SQL.scoring, {"id": run_id}).one_or_none(), f"run {run_id}")
    space = RewardSpace(tuple(read_stored(Objective, objective) for objective in row.objectives))
    targets = tuple(read_stored(Target, target) for target in row.targets)
    return ScoringSchema(Ranking(space, targets, space.weight_vector(row.weights)))


def load_context(connection: sa.Connection, run_id: UUID) -> RunContext:
    """Return the immutable parts of a run; raises ``NotFoundError`` for an unknown one."""
    row = require_row(connection.execute(SQL.context, {"id": run_id}).one_or_none(), f"run {run_id}")
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


def insert_shares(connection: sa.Connection, run_id: UUID, ensembles: Ensembles) -> None:
    rows = [
        {"run_id": run_id, "role": role.value, "ord": ord_, "policy_id": share.version.id, "weight": share.weight}
        for role, shares in ensembles.items()
        for ord_, share in enumerate(shares)
    ]
    if rows:
        connection.execute(SQL.insert_share, rows)


def insert_seeds(connection: sa.Connection, run_id: UUID, seeds: Sequence[SeedProgram]) -> None:
    rows = [
        {"run_id": run_id, "ord": ord_, "program": seed.program, "origin": seed.origin}
        for ord_, seed in enumerate(seeds)
    ]
    if rows:
        connection.execute(SQL.insert_seed, rows)


def record_proposer(connection: sa.Connection, run_id: UUID, policy_id: UUID) -> None:
    """Count a proposer from outside among the policies of a run, so that no other policy is credited with its unlocks.

    The run's progress must be locked. Nothing changes if the policy is the run's own.
    """
    connection.execute(SQL.record_proposer, {"id": run_id, "policy": policy_id})


def read_shares(connection: sa.Connection, run_id: UUID) -> dict[PolicyRole, tuple[WeightedPolicy, ...]]:
    ensembles: dict[PolicyRole, tuple[WeightedPolicy, ...]] = {}
    for row in connection.execute(SQL.shares, {"id": run_id}):
        share = WeightedPolicy(read_stored(Policy, row.definition), row.policy_id, row.weight)
        role = PolicyRole(row.role)
        ensembles[role] = (*ensembles.get(role, ()), share)
    return ensembles


def members(shares: Sequence[dict[str, Any]], counted: Mapping[str, dict[str, Any]]) -> tuple[EnsembleMember, ...]:
    """Statistics of ensemble members from ``ensemble_shares`` and arms; without mutators proposers mutate."""
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
