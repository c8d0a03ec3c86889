"""Read the seed programs of a new run from other runs."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from speciate.domain.errors import InvalidInputError
from speciate.domain.seeds import SeedChoice, SeedProgram, SeedRequest, SeedSource
from speciate.domain.visibility import require_visible
from speciate.schema.problems import ProblemVersion
from speciate.schema.runs import RankedCandidate, SourceRun
from speciate.storage.runs.store import PostgresRunStore


def read_seeds(store: PostgresRunStore, problem: ProblemVersion, request: SeedRequest) -> Iterator[SeedProgram]:
    """Yield the seed programs of a request: those that it holds, then those of its runs, best first.

    Args:
        store: Runs of the project.
        problem: The problem of the new run.
        request: The request.

    Raises:
        NotFoundError: A run does not exist.
        ConflictError: A run is archived or deleted.
        InvalidInputError: A run is of another problem, has no scored candidate, or its programs are deleted.
    """
    for text in request.seeds:
        yield SeedProgram(text.program, text.name or None)
    for source in request.seed_from:
        yield from _taken(store, problem, source)


def read_sources(store: PostgresRunStore, request: SeedRequest) -> list[SourceRun]:
    """Return the runs of a request and their own sources, each once, with what they have spent."""
    found: dict[UUID, SourceRun] = {}
    for source in request.seed_from:
        run = store.get(UUID(source.run))
        spent = run.spent
        own = SourceRun(run=run.id, evaluations=spent.evaluations, tokens=spent.tokens, seconds=spent.seconds)
        for each in (own, *run.sources):
            # Of two states of a run, the later one includes the earlier one.
            found[each.run] = max(each, found.get(each.run, each), key=lambda one: one.evaluations)
    return list(found.values())


def _taken(store: PostgresRunStore, problem: ProblemVersion, source: SeedSource) -> Iterator[SeedProgram]:
    run = store.get(UUID(source.run))
    require_visible(f"run {run.id}", run)
    if run.problem != problem.definition.slug:
        raise InvalidInputError(
            f"run {run.id} is of problem {run.problem}: a run of problem {problem.definition.slug} cannot start from"
            " it.",
            remedy="Choose a run of the same problem, of any version.",
        )
    queries = store.queries()
    chosen: tuple[RankedCandidate, ...] = (run.best,) if run.best is not None else ()
    if source.take is SeedChoice.FRONT:
        chosen = queries.front(run.id)[: source.limit]
    if not chosen:
        raise InvalidInputError(f"run {run.id} has no scored candidate to start from.")
    programs = queries.programs(run.id, [candidate.number for candidate in chosen])
    for candidate in chosen:
        if not programs.get(candidate.number):
            raise InvalidInputError(
                f"candidate {candidate.number} of run {run.id} has no program left: retention deleted it.",
                remedy=f"Start from {run.id}:best, whose program is kept.",
            )
        yield SeedProgram(programs[candidate.number], f"{run.id}/{candidate.number}")
