"""Tournaments: head-to-head comparisons of policies, declared before the first run and never changed after."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final, NamedTuple, Self

from pydantic import Field, model_validator

from speciate.domain.budget import Budget
from speciate.domain.entrant import Entrant, Named
from speciate.domain.errors import ConflictError
from speciate.domain.run import RunSpec
from speciate.domain.values import Identifier, Slug, Value, digest_of

MAX_RUNS: Final = 1_000_000

Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class TournamentState(StrEnum):
    """What the tournament asks of its runs."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


_MOVES: Final[dict[TournamentState, frozenset[TournamentState]]] = {
    TournamentState.RUNNING: frozenset({TournamentState.PAUSED, TournamentState.CANCELLED}),
    TournamentState.PAUSED: frozenset({TournamentState.RUNNING, TournamentState.CANCELLED}),
}


def check_move(slug: str, source: TournamentState, goal: TournamentState) -> None:
    """Let people only make moves that a tournament allows; control alone completes it.

    Raises:
        ConflictError: This one is not; the message says which ones are.
    """
    allowed = _MOVES.get(source, frozenset())
    if goal not in allowed:
        why = f"only {' or '.join(sorted(allowed))}" if allowed else "it has ended"
        raise ConflictError(f"tournament {slug!r} is {source.value} and cannot become {goal.value}: {why}.")


class Metric(StrEnum):
    """What is compared, one number for each problem and entrant."""

    SOLVE_RATE = "solve_rate"
    """Share of seeds whose run reached the target."""
    LOG_ERT = "log_ert"
    """−log of the expected evaluations to the target; without success, of twice what was spent."""


class StoppingRule(StrEnum):
    """When the tournament ends."""

    FIXED = "fixed"
    """When all runs have ended; tests are shown then and not before."""
    E_PROCESS = "e_process"
    """As soon as the e-process has decided every comparison; may be looked at any time."""


class Planned(NamedTuple):
    """One run of the plan."""

    problem: str
    seed: int
    entrant: str


class Tournament(Value):
    """A declaration. Higher is better in every metric.

    Attributes:
        slug: Name; it can never be used again.
        title: One line for people.
        problems: What is to be solved, without repetition.
        entrants: Who takes part, at least two.
        baseline: Name of the entrant that the others are compared with, unless they name another.
        seeds: One run for each, problem and entrant.
        budget: What each run may spend: evaluations, and tokens if they are limited as well.
        target: Target that counts; None is the one that unlocks each problem.
        metric: Primary metric.
        stopping: When it ends.
        alpha: Chance of any false decision.
    """

    slug: Slug
    title: str = Field(default="", max_length=200)
    problems: tuple[Named, ...] = Field(min_length=1, max_length=10_000)
    entrants: tuple[Entrant, ...] = Field(max_length=200)
    baseline: Slug
    seeds: tuple[Seed, ...] = Field(default=tuple(range(8)), min_length=1, max_length=1000)
    budget: Budget
    target: Identifier | None = None
    metric: Metric = Metric.SOLVE_RATE
    stopping: StoppingRule = StoppingRule.FIXED
    alpha: float = Field(default=0.05, gt=0, lt=0.5)

    @model_validator(mode="after")
    def _can_be_compared(self) -> Self:
        if len(self.entrants) < 2:
            raise ValueError(f"a tournament of {len(self.entrants)} entrants compares nobody: expected at least 2")
        names = [entrant.name for entrant in self.entrants]
        given: Sequence[object]
        for what, given in (("entrant", names), ("problem", self.problems), ("seed", self.seeds)):
            if (most := Counter(given).most_common(1)) and most[0][1] > 1:
                raise ValueError(f"{what} {most[0][0]!r} is named twice: expected each once")
        if self.baseline not in names:
            raise ValueError(f"baseline {self.baseline!r} is no entrant: expected one of {', '.join(names)}")
        for entrant in self.entrants:
            if entrant.against is not None and (entrant.against not in names or entrant.against == entrant.name):
                raise ValueError(f"entrant {entrant.name!r} is against {entrant.against!r}: expected another entrant")
        if self.budget.evaluations is None or self.budget.seconds is not None:
            raise ValueError(
                "the budget of a tournament is evaluations, and tokens if wanted: seconds differ between two machines"
            )
        if (runs := len(self.problems) * len(names) * len(self.seeds)) > MAX_RUNS:
            raise ValueError(f"{runs:,} runs are declared: expected at most {MAX_RUNS:,}")
        return self

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the declaration; fields that came later have no part in it while they are at their defaults."""
        return digest_of(self.stored_json())

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Who is compared with whom, by name; a baseline that names nobody is only compared with."""
        pairs = ((e.name, e.against or self.baseline) for e in self.entrants)
        return tuple((name, other) for name, other in pairs if name != other)

    def too_few(self, problems: int) -> str:
        """Return why so many problems can decide no comparison, whatever their runs say; nothing where they can."""
        if self.stopping is StoppingRule.E_PROCESS:
            return ""
        # A pattern of signs has its mirror image: two of 2^n are always as extreme, and Holm multiplies the least p.
        needed = 1 + math.ceil(math.log2(len(self.comparisons) / self.alpha))
        if problems >= needed:
            return ""
        decide = "problem decides" if problems == 1 else "problems decide"
        return f"{problems} {decide} nothing: expected at least {needed}"

    def entrant(self, name: str) -> Entrant:
        """Return an entrant by name."""
        return next(entrant for entrant in self.entrants if entrant.name == name)

    def spec(self, entrant: Entrant, seed: int) -> RunSpec:
        """Return what defines the course of one run."""
        return RunSpec(
            strategy=entrant.strategy,
            strategy_options=entrant.strategy_options,
            budget=self.budget,
            seed=seed,
            lanes=1,  # a run depends on its seed alone
            batch=entrant.batch,
            samples_per_prompt=entrant.samples_per_prompt,
            policy_choice=entrant.choice,
        )

    def drawn(self, problems: Sequence[str]) -> tuple[str, ...]:
        """Return problems in the order in which they are run: under the e-process one that nobody could choose."""
        if self.stopping is StoppingRule.FIXED:
            return tuple(problems)
        return tuple(sorted(problems, key=lambda name: hashlib.sha256(f"{self.digest}:{name}".encode()).digest()))

    def plan(self, problems: Sequence[str], seeds: Sequence[int]) -> Iterator[Planned]:
        """Yield runs in the order in which they are started; all entrants of a problem and seed are neighbours."""
        names = [entrant.name for entrant in self.entrants]
        if self.stopping is StoppingRule.FIXED:
            pairs = [(problem, seed) for seed in seeds for problem in problems]
        else:
            pairs = [(problem, seed) for problem in problems for seed in seeds]
        return (Planned(problem, seed, name) for problem, seed in pairs for name in names)


class Extension(Value):
    """More problems or more seeds, for all entrants.

    Attributes:
        problems: Problems to add.
        seeds: Seeds to add.
        reason: Why; it is kept.
    """

    problems: tuple[Named, ...] = Field(default=(), max_length=10_000)
    seeds: tuple[Seed, ...] = Field(default=(), max_length=1000)
    reason: str = Field(min_length=1, max_length=2000)

    @model_validator(mode="after")
    def _something_is_added(self) -> Self:
        if not self.problems and not self.seeds:
            raise ValueError("nothing is added: expected problems, seeds or both")
        return self


class Course(Value):
    """A declaration with its extensions: what is run in the end.

    Attributes:
        declared: What was declared.
        problems: All problems, in the order in which they are run.
        seeds: All seeds.
    """

    declared: Tournament
    problems: tuple[str, ...]
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, declared: Tournament, extensions: Sequence[Extension] = ()) -> Self:
        """Return the course of a declaration after its extensions, in their order."""
        course = cls(declared=declared, problems=declared.drawn(declared.problems), seeds=declared.seeds)
        for extension in extensions:
            course = course.extended(extension)
        return course

    def extended(self, more: Extension) -> Self:
        """Return the course with an extension.

        Raises:
            ConflictError: Something is in it already, seeds would change bets that were made, or it becomes too large.
        """
        if repeated := [*({*more.problems} & {*self.problems}), *({*more.seeds} & {*self.seeds})]:
            raise ConflictError(f"{repeated[0]!r} is in tournament {self.declared.slug!r} already.")
        if len({*more.problems}) < len(more.problems) or len({*more.seeds}) < len(more.seeds):
            raise ConflictError("the extension names something twice.", remedy="Name every problem and seed once.")
        if more.seeds and self.declared.stopping is StoppingRule.E_PROCESS:
            raise ConflictError(
                "more seeds would change the e-process's bets on problems that were looked at.",
                remedy="Extend by problems instead.",
            )
        problems = (*self.problems, *self.declared.drawn(more.problems))
        seeds = (*self.seeds, *more.seeds)
        if len(problems) * len(seeds) * len(self.declared.entrants) > MAX_RUNS:
            raise ConflictError(f"the tournament would have more than {MAX_RUNS:,} runs.")
        return self.model_copy(update={"problems": problems, "seeds": seeds})

    def plan(self) -> Iterator[Planned]:
        """Yield every run of the course."""
        return self.declared.plan(self.problems, self.seeds)


def head_to_head(
    policies: Sequence[str], *, mutator: str | None = None, strategy: str = "vector_evolution"
) -> tuple[tuple[Entrant, ...], str]:
    """Return the entrants of a standard head-to-head, and the name of its baseline.

    Three cells, so that a mutator cannot hide a policy: ``independent`` (best of n), ``evolved`` (each policy changes
    its own parents) and, with a mutator, ``common-mutator`` (it changes everybody's). In every cell policies are
    compared with the first one; the first one's searches are compared with its own independent answers, the floor.

    Args:
        policies: Names of policies, the baseline first.
        mutator: The common mutator.
        strategy: The search of the other cells.
    """
    cells: list[tuple[str, str, str | None]] = [("independent", "best_of_n", None), ("evolved", strategy, None)]
    if mutator is not None:
        cells.append(("common-mutator", strategy, mutator))
    labels = [policy.replace("@", "-v") for policy in policies]
    floor = f"{labels[0]}-independent"
    entrants = [
        Entrant(
            name=f"{label}-{cell}",
            policy=policy,
            strategy=search,
            mutator=common,
            against=f"{labels[0]}-{cell}" if label != labels[0] else None,
        )
        for cell, search, common in cells
        for policy, label in zip(policies, labels, strict=True)
    ]
    return tuple(entrants), floor
