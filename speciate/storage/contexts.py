"""Loading what never changes about a run."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import NotFoundError
from speciate.domain.objective import Objective
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.reward import RewardSpace
from speciate.domain.run import RunSpec
from speciate.ports.work import RunContext
from speciate.storage.ensemble_rows import read_shares
from speciate.storage.stored import read_stored

_CONTEXT = sa.text(
    "SELECT r.project_id, r.spec, r.policy_id, r.mutator_id, p.definition AS problem, a.definition AS proposer,"
    " b.definition AS mutator FROM runs r JOIN problems p ON p.id = r.problem_id JOIN policies a ON a.id = r.policy_id"
    " LEFT JOIN policies b ON b.id = r.mutator_id WHERE r.id = :id"
)

_MEASURES = sa.text(
    "SELECT p.definition -> 'objectives' AS objectives, p.definition -> 'targets' AS targets,"
    " p.definition -> 'weights' AS weights"
    " FROM runs r JOIN problems p ON p.id = r.problem_id WHERE r.id = :id"
)


@dataclass(frozen=True)
class Measures:
    """What a run's candidates are measured by: the little of its problem that their records need. It never changes.

    Attributes:
        space: The objectives.
        targets: Names of the targets, in declared order.
        weighted: Whether weights are declared, so that there is a scalar.
    """

    space: RewardSpace
    targets: tuple[str, ...]
    weighted: bool


def load_measures(connection: sa.Connection, run_id: UUID) -> Measures:
    """Return what a run's candidates are measured by; raises as ``load_context`` does."""
    row = connection.execute(_MEASURES, {"id": run_id}).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no run {run_id}.")
    objectives = tuple(read_stored(Objective, objective) for objective in row.objectives)
    targets = tuple(target["name"] for target in row.targets)
    return Measures(RewardSpace(objectives), targets, row.weights is not None)


def load_context(connection: sa.Connection, run_id: UUID) -> RunContext:
    """Return a run's problem, policies and spec.

    Raises:
        NotFoundError: There is no such run.
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
    )
