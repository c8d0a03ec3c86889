"""Check the seed programs of a new run."""

from __future__ import annotations

from collections.abc import Iterable

from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.domain.seeds import MAX_SEED_BYTES, MAX_SEEDS, SeedProgram
from speciate.prompts.parse import program_failure


def accepted_seeds(problem: Problem, spec: RunSpec, given: Iterable[SeedProgram]) -> tuple[SeedProgram, ...]:
    """Return the distinct seed programs of a run.

    Raises:
        InvalidInputError: A program cannot be a candidate of the problem, or there are more than the run may have or
            its budget pays for.
    """
    distinct: dict[str, SeedProgram] = {}
    for position, seed in enumerate(given, start=1):
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
