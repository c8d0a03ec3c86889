"""Read the seed programs of a new run, also from other runs, and check them."""

from collections.abc import Iterable, Iterator
from uuid import UUID

from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.domain.seeds import MAX_SEED_BYTES, MAX_SEEDS, SeedChoice, SeedProgram, SeedRequest, SeedSource
from speciate.domain.visibility import require_visible
from speciate.ports.runs import RunStore
from speciate.prompts.parse import program_failure
from speciate.schema.problems import ProblemVersion
from speciate.schema.runs import RankedCandidate, SourceRun


def accepted_seeds(problem: Problem, spec: RunSpec, programs: Iterable[SeedProgram]) -> tuple[SeedProgram, ...]:
    """Return the distinct seed programs of a run.

    Raises:
        InvalidInputError: A program cannot be a candidate of the problem, or there are more than the run may have or
            its budget pays for.
    """
    distinct: dict[str, SeedProgram] = {}
    for position, seed in enumerate(programs, start=1):
        if failure := program_failure(seed.program, problem):
            where = f"{position} ({seed.origin})" if seed.origin else f"{position}"
            raise InvalidInputError(
                f"seed program {where} cannot be a candidate of problem {problem.slug}: {failure.reason}:"
                f" {failure.detail}."
            )
        distinct.setdefault(seed.digest, seed)
    seeds = tuple(distinct.values())
    if len(seeds) > MAX_SEEDS:
        raise InvalidInputError(
            f"the run would have {len(seeds):,} seed programs: expected at most {MAX_SEEDS}.",
            remedy=f"Take fewer, such as the best of a front with RUN:front={MAX_SEEDS}.",
        )
    if (size := sum(len(seed.program.encode()) for seed in seeds)) > MAX_SEED_BYTES:
        raise InvalidInputError(f"the seed programs hold {size:,} bytes: expected at most {MAX_SEED_BYTES:,} together.")
    limit = spec.budget.evaluations
    if limit is not None and len(seeds) > limit:
        raise InvalidInputError(
            f"the run has {len(seeds):,} seed programs and a budget of {limit:,} evaluations: each seed is evaluated.",
            remedy="Raise the budget or give fewer seed programs.",
        )
    return seeds


def read_seeds(store: RunStore, problem: ProblemVersion, request: SeedRequest) -> Iterator[SeedProgram]:
    """Yield the seed programs of a request: those that it holds, then those of its runs, best first.

    Raises:
        NotFoundError: A run does not exist.
        ConflictError: A run is archived or deleted.
        InvalidInputError: A run is of another problem, has no scored candidate, or its programs are deleted.
    """
    for text in request.seeds:
        yield SeedProgram(text.program, text.name or None)
    for source in request.seed_from:
        yield from _programs_of(store, problem, source)


def read_sources(store: RunStore, request: SeedRequest) -> list[SourceRun]:
    """Return the runs of a request and their own sources, each once, with what they have spent."""
    sources: dict[UUID, SourceRun] = {}
    for source in request.seed_from:
        run = store.get(UUID(source.run))
        spent = run.spent
        source_run = SourceRun(run=run.id, evaluations=spent.evaluations, tokens=spent.tokens, seconds=spent.seconds)
        for each in (source_run, *run.sources):
            # Of two states of a run, the later one includes the earlier one.
            sources[each.run] = max(each, sources.get(each.run, each), key=lambda one: one.evaluations)
    return list(sources.values())


def _programs_of(store: RunStore, problem: ProblemVersion, source: SeedSource) -> Iterator[SeedProgram]:
    run = store.get(UUID(source.run))
    require_visible(f"run {run.id}", run)
    if run.problem != problem.definition.slug:
        raise InvalidInputError(
            f"run {run.id} is of problem {run.problem}: a run of problem {problem.definition.slug} cannot start from"
            " it.",
            remedy="Choose a run of the same problem, of any version.",
        )
    queries = store.queries()
    candidates: tuple[RankedCandidate, ...] = (run.best,) if run.best is not None else ()
    if source.take is SeedChoice.FRONT:
        candidates = queries.front(run.id)[: source.limit]
    if not candidates:
        raise InvalidInputError(f"run {run.id} has no scored candidate to start from.")
    programs = queries.programs(run.id, [candidate.number for candidate in candidates])
    for candidate in candidates:
        if not programs.get(candidate.number):
            raise InvalidInputError(
                f"candidate {candidate.number} of run {run.id} has no program left: retention deleted it.",
                remedy=f"Start from {run.id}:best, whose program is kept.",
            )
        yield SeedProgram(programs[candidate.number], f"{run.id}/{candidate.number}")
