"""Revise the archive of a run with noisy rewards, in the transaction that records a batch (see ``search.noise``)."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Final

import sqlalchemy as sa

from speciate.ports.work import EvaluatedBatch, RunContext, WorkStore
from speciate.runs.stored_population import StoredPopulation
from speciate.search.noise import Revision, revise, trial_of
from speciate.search.strategies import strategy_of
from speciate.search.strategy import Placement
from speciate.storage.candidates.population import elites, members
from speciate.storage.candidates.rows import read_failure
from speciate.storage.statements import Statements

SQL: Final = Statements(__file__)


def revise_archive(
    connection: sa.Connection,
    work: WorkStore,
    context: RunContext,
    ordinal: int,
    batch: EvaluatedBatch,
    best: int | None,
    meeting: Sequence[int] = (),
) -> tuple[tuple[Placement, ...], Revision]:
    """Place the new programs of a batch and all elites by what is known of them now.

    ``best`` is the number of the best candidate before; ``meeting`` see ``revise``. Returns the cells with another
    holder, and the revision.
    """
    keys = {"run_id": context.run_id}
    archive = elites(connection, context.run_id)
    new, repeated = batch.newcomers, batch.repeated
    numbers = sorted({*new, *repeated, *meeting, *(each.number for each in archive), *([] if best is None else [best])})
    rows = connection.execute(SQL.trials, {**keys, "numbers": numbers})
    evaluated = (trial_of(row.program, row.trial or 0, row.rewards, read_failure(row)) for row in rows)
    trials = [trial for trial in evaluated if trial is not None]
    programs = members(connection, context.run_id, numbers)
    population, problem = partial(StoredPopulation, work, context), context.problem
    strategy = strategy_of(context.spec)
    revision = revise(problem, strategy, population, ordinal, archive, programs, trials, new, repeated, meeting)
    known = [
        {"number": each.number, "targets": each.targets, "evaluations": each.evaluations, "error": list(each.error)}
        | {"rewards": list(mean := revision.estimates[each.number].mean), "scalar": problem.scalarize(mean)}
        for each in revision.individuals
    ]
    connection.execute(SQL.empty, keys)
    connection.execute(SQL.fill, {**keys, "elites": [asdict(each) for each in revision.archive], "known": known})
    return revision.changes(archive), revision
