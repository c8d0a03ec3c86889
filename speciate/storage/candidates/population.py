"""Read a run's population: elites, individuals by number, duplicates by text and syntax tree."""

from collections.abc import Sequence
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.budget import Budget
from speciate.domain.candidate import COSTS, Candidate, Evaluation, Individual, Proposal
from speciate.domain.problem import OUTPUT
from speciate.ports.work import CarriedOutput, Standing
from speciate.runs.progress import RunProgress
from speciate.search.strategy import Placement
from speciate.storage.candidates.rows import columns_of, read_candidate, read_failure, read_individual
from speciate.storage.statements import Statements

SQL = Statements(
    __file__,
    individual=columns_of(Individual),
    result=columns_of(Individual, without=("program", "artifacts")),
    candidate=columns_of(Candidate, Proposal, Evaluation, without=(*COSTS, "artifacts")),
)


def elites(connection: sa.Connection, run_id: UUID, island: int | None = None) -> list[Placement]:
    """Return the archive of an island, or of all, by island and cell."""
    return [
        Placement(
            row.number,
            row.island,
            row.cell,
            row.fitness,
            tuple(row.rewards),
            tuple(row.error or ()),
            row.evaluations or 1,
        )
        for row in connection.execute(SQL.elites, {"id": run_id, "island": island})
    ]


def lineage_rows(connection: sa.Connection, run_id: UUID) -> list[tuple[int, int, Sequence[float] | None]]:
    """Return number, first parent (0 for none) and rewards of every candidate, ascending by number."""
    return [(row.number, row.parent, row.rewards) for row in connection.execute(SQL.lineage, {"id": run_id})]


def members(connection: sa.Connection, run_id: UUID, numbers: Sequence[int]) -> dict[int, Individual]:
    if not numbers:
        return {}
    rows = connection.execute(SQL.members, {"id": run_id, "numbers": list(set(numbers))})
    return {row.number: read_individual(row) for row in rows}


def latest(connection: sa.Connection, run_id: UUID, most: int) -> list[Individual]:
    """Return the latest candidates without their texts, newest first."""
    return [read_individual(row) for row in connection.execute(SQL.latest, {"id": run_id, "most": most})]


def standing(connection: sa.Connection, run_id: UUID) -> Standing:
    row = connection.execute(SQL.standing, {"id": run_id}).one()
    progress = RunProgress(
        evaluations=row.evaluations, reserved_evaluations=row.reserved_evaluations, granted=row.granted
    )
    left = progress.evaluations_left(Budget.model_validate(row.budget))
    return Standing(row.seed, row.best_number, left, row.confirmed or {})


def completions(connection: sa.Connection, run_id: UUID, numbers: Sequence[int]) -> dict[int, str]:
    """Return the completions that gave one candidate, by its number."""
    rows = connection.execute(SQL.completions, {"id": run_id, "numbers": list(numbers)})
    return {row.number: row.completion for row in rows}


def carried(connection: sa.Connection, run_id: UUID, to: int | None = None) -> CarriedOutput | None:
    """Return the output that candidate ``to`` received, or that of the best candidate for a new one."""
    row = connection.execute(SQL.carried, {"id": run_id, "to": to, "output": OUTPUT}).one_or_none()
    return None if row is None else CarriedOutput(row.number, row.output)


def duplicates(
    connection: sa.Connection, run_id: UUID, hashes: Sequence[str], shapes: Sequence[str] = ()
) -> dict[str, Candidate]:
    """Return the earliest candidate for each hash and each shape, except rejected proposals."""
    if not hashes:
        return {}
    rows = connection.execute(SQL.duplicates, {"id": run_id, "hashes": list(set(hashes)), "shapes": list(set(shapes))})
    # Newest first, so that the earliest of equal digests is written last and stays.
    return {
        row.digest: read_candidate(row) for row in rows if not ((failure := read_failure(row)) and failure.repeatable)
    }
