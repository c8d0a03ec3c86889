"""Revise the archive of a run with noisy rewards, in the transaction that records a batch (see ``search.noise``)."""

from __future__ import annotations

from functools import partial
from typing import Final

import sqlalchemy as sa

from speciate.ports.work import EvaluatedBatch, RunContext, WorkStore
from speciate.runs.stored_population import StoredPopulation
from speciate.search.noise import Revision, revise, trial_of
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Placement
from speciate.storage.candidates.population import members
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
) -> tuple[tuple[Placement, ...], Revision]:
    """Place the new programs of a batch and all elites by what is known of them now.

    ``best`` is the number of the best candidate before. Returns the cells with another holder, and the revision.
    """
    keys = {"run_id": context.run_id}
    archive = [
        Placement(row.number, row.island, row.cell, row.fitness, tuple(row.rewards))
        for row in connection.execute(SQL.archive, keys)
    ]
    new = [
        each.number for each in batch.candidates if each.duplicate_of is None and each.evaluation.rewards is not None
    ]
    numbers = sorted({*new, *batch.repeated, *(each.number for each in archive), *([] if best is None else [best])})
    rows = connection.execute(SQL.trials, {**keys, "numbers": numbers})
    trials = [trial_of(row.program, row.trial or 0, row.rewards, read_failure(row)) for row in rows]
    strategy = build_strategy(context.spec.strategy, context.spec.strategy_options)
    revision = revise(
        context.problem,
        strategy,
        partial(StoredPopulation, work, context),
        ordinal,
        archive,
        members(connection, context.run_id, numbers),
        [each for each in trials if each is not None],
        new,
        batch.repeated,
    )
    elites = [
        {"island": p.island, "cell": p.cell, "number": p.number, "fitness": p.fitness, "rewards": list(p.rewards)}
        | {"error": list(p.error)}
        for p in revision.archive
    ]
    known = [
        {"number": each.number, "targets": each.targets, "evaluations": each.evaluations, "error": list(each.error)}
        | {"rewards": list(mean := revision.estimates[each.number].mean), "scalar": context.problem.scalarize(mean)}
        for each in revision.individuals
    ]
    connection.execute(SQL.empty, keys)
    connection.execute(SQL.fill, {**keys, "elites": elites, "known": known})
    return revision.changes(archive), revision
