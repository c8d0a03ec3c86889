"""Tournaments: head-to-head comparisons of policies, declared before the first run and never changed after."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple, Self

from pydantic import Field, model_validator

from speciate.domain.budget import Budget
from speciate.domain.declaration import Declaration, DeclarationKind, refuse_repeated
from speciate.domain.entrant import Entrant, Named, Search, Seed
from speciate.domain.errors import ConflictError
from speciate.domain.run import EngineOptions, RunSpec
from speciate.domain.values import MAX_REASON, Identifier, Slug, Value

MAX_RUNS: Final = 1_000_000
_ALONE: Final = dict.fromkeys(("against", "method", "training_seed"))


class Metric(StrEnum):
    """Measure of an entrant on a problem; higher is better."""

    SOLVE_RATE = "solve_rate"
    """Share of seeds whose run reached the target."""
    LOG_ERT = "log_ert"
    """−log of the expected evaluations to the target; without a success, of twice the budget."""
    BEST_SCORE = "best_score"
    """Mean over seeds of the best score: the declared weighted sum of the normalized objectives, or their mean."""
    AREA = "area"
    """The same of the best score so far, as its mean over budgets that are evenly spaced in logarithm."""

    @property
    def of_scores(self) -> bool:
        return self in (Metric.BEST_SCORE, Metric.AREA)


class StoppingRule(StrEnum):
    FIXED = "fixed"
    """When all runs have ended; tests are shown only then."""
    E_PROCESS = "e_process"
    """As soon as the e-process has decided every comparison; its evidence may be inspected at any time."""


class PlannedRun(NamedTuple):
    problem: str
    seed: int
    entrant: str


class MethodGroup(NamedTuple):
    """The training runs of one method, searched in one way."""

    method: str
    search: Search
    runs: tuple[Entrant, ...]
    """Entrants, ordered by training seed."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(entrant.training_seed or 0 for entrant in self.runs)

    def paired_with(self, other: "MethodGroup") -> bool:
        """Return True if the runs are paired: both methods declare the same training seeds."""
        return self.seeds == other.seeds


class Tournament(Declaration):
    kind: ClassVar[DeclarationKind] = DeclarationKind.TOURNAMENT

    entrants: tuple[Entrant, ...] = Field(max_length=200)
    """Competitors, at least two."""
    baseline: Slug
    """Name of the entrant that the others are compared with, unless they name another one."""
    seeds: tuple[Seed, ...] = Field(default=tuple(range(8)), min_length=1, max_length=1000)
    """Seeds; each problem and entrant has one run for every seed."""
    budget: Budget
    """Budget of each run: evaluations, and optionally tokens."""
    target: Identifier | None = None
    """Target that counts as success; by default each problem's unlock target."""
    metric: Metric = Metric.SOLVE_RATE
    """Primary metric: the share of solved runs, the expected evaluations to the target, the best score or its area."""
    stopping: StoppingRule = StoppingRule.FIXED
    """When the tournament ends: fixed: with its last run; e_process: once all is decided."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability of any false decision about entrants, and of any about methods."""

    @model_validator(mode="before")
    @classmethod
    def _duplicates_are_copied(cls, values: Any) -> Any:
        entrants = values.get("entrants") if isinstance(values, dict) else None
        if not isinstance(entrants, list | tuple) or not all(isinstance(each, dict) for each in entrants):
            return values
        own = {str(each.get("name")): {**each, **_ALONE} for each in entrants if not each.get("duplicate_of")}
        unknown = {"policy": "unknown"}  # so that the error is about the name
        copied = (
            {**own.get(str(each["duplicate_of"]), unknown), **each} if each.get("duplicate_of") else each
            for each in entrants
        )
        return {**values, "entrants": [*copied]}

    @model_validator(mode="after")
    def _entrants_are_comparable(self) -> Self:
        if (own := sum(entrant.duplicate_of is None for entrant in self.entrants)) < 2:
            raise ValueError(f"{own} entrants cannot be compared: expected at least 2, besides duplicates")
        names = [entrant.name for entrant in self.entrants]
        refuse_repeated("entrant", names)
        refuse_repeated("seed", self.seeds)
        if self.baseline not in names:
            raise ValueError(f"baseline {self.baseline!r} is not an entrant: expected one of {', '.join(names)}")
        for entrant in self.entrants:
            if entrant.against is not None and (entrant.against not in names or entrant.against == entrant.name):
                raise ValueError(f"entrant {entrant.name!r} is against {entrant.against!r}: expected another entrant")
        return self

    @model_validator(mode="after")
    def _duplicates_repeat(self) -> Self:
        own = {entrant.name: entrant for entrant in self.entrants if entrant.duplicate_of is None}
        compared = {self.baseline, *(entrant.against for entrant in self.entrants)}
        for entrant in self.entrants:
            if entrant.duplicate_of is None:
                continue
            what = f"entrant {entrant.name!r} duplicates {entrant.duplicate_of!r}"
            if entrant.duplicate_of not in own:
                raise ValueError(f"{what}: expected an entrant that is no duplicate")
            if entrant.played() != own[entrant.duplicate_of].played():
                raise ValueError(f"{what} and differs from it: expected no other options than its name")
            if entrant.against or entrant.method or entrant.name in compared:
                raise ValueError(f"{what}, and is compared with it alone: expected no 'against', 'method' or baseline")
        return self

    @model_validator(mode="after")
    def _size_is_bounded(self) -> Self:
        if self.budget.evaluations is None or self.budget.seconds is not None:
            raise ValueError(
                "the budget of a tournament must be evaluations, optionally with tokens: seconds depend on the machine"
            )
        if self.metric.of_scores and self.stopping is StoppingRule.E_PROCESS:
            raise ValueError(f"the e-process bets on targets: expected stopping 'fixed' with metric {self.metric}")
        if (runs := len(self.problems) * len(self.entrants) * len(self.seeds)) > MAX_RUNS:
            raise ValueError(f"the tournament has {runs:,} runs: expected at most {MAX_RUNS:,}")
        return self

    @model_validator(mode="after")
    def _methods_are_comparable(self) -> Self:
        groups = self.method_groups
        if groups and self.stopping is StoppingRule.E_PROCESS:
            raise ValueError("methods are compared when all runs have ended: expected stopping 'fixed', or no 'method'")
        for group in groups:
            refuse_repeated(f"training seed of method {group.method!r}", group.seeds)
            if len({(entrant.batch, entrant.samples_per_prompt) for entrant in group.runs}) > 1:
                raise ValueError(
                    f"training runs of method {group.method!r} differ in how they are asked: expected one 'batch' and"
                    " one 'samples_per_prompt'"
                )
        if groups and not self.method_comparisons:
            raise ValueError(
                "no two methods are searched in the same way: expected entrants of another method with the strategy,"
                f" options and mutator of method {self.baseline_method!r}"
            )
        return self

    @property
    def method_groups(self) -> tuple[MethodGroup, ...]:
        """Entrants with a method, grouped by method and search, in declared order."""
        groups: dict[tuple[str, Search], list[Entrant]] = {}
        for entrant in self.entrants:
            if entrant.method is not None:
                groups.setdefault((entrant.method, entrant.search), []).append(entrant)
        return tuple(
            MethodGroup(method, search, tuple(sorted(runs, key=lambda entrant: entrant.training_seed or 0)))
            for (method, search), runs in groups.items()
        )

    @property
    def baseline_method(self) -> str | None:
        """Method that the others are compared with: of the baseline, else of the first entrant with a method."""
        methods = [entrant.method for entrant in self.entrants if entrant.method is not None]
        return self.entrant(self.baseline).method or next(iter(methods), None)

    @property
    def method_comparisons(self) -> tuple[tuple[MethodGroup, MethodGroup], ...]:
        """Pairs of groups that are compared: every method with the baseline method, searched in the same way."""
        groups = self.method_groups
        baselines = {group.search: group for group in groups if group.method == self.baseline_method}
        return tuple(
            (group, baselines[group.search])
            for group in groups
            if group.method != self.baseline_method and group.search in baselines
        )

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Pairs of entrant names that are compared.

        Without ``against`` the baseline and the other training runs of its method, searched alike, open no pair.
        """
        baseline = self.entrant(self.baseline)
        return tuple(
            (entrant.name, entrant.against or baseline.name)
            for entrant in self.entrants
            if entrant.duplicate_of is None and (entrant.against is not None or not entrant.repeats(baseline))
        )

    @property
    def nulls(self) -> tuple[tuple[str, str], ...]:
        """Duplicates with the entrants that they repeat; they are tested for themselves and decide nothing."""
        return tuple((entrant.name, entrant.duplicate_of) for entrant in self.entrants if entrant.duplicate_of)

    def too_few(self, problems: int) -> str:
        """Return why ``problems`` cannot decide any comparison whatever the results; empty if they can."""
        if self.stopping is StoppingRule.E_PROCESS:
            return ""
        # A pattern of signs has its mirror image: two of 2^n are always as extreme, and Holm multiplies the least p.
        needed = 1 + math.ceil(math.log2(len(self.comparisons) / self.alpha))
        if problems >= needed:
            return ""
        decide = "problem cannot decide" if problems == 1 else "problems cannot decide"
        return f"{problems} {decide} any comparison: expected at least {needed}"

    @property
    def doubt(self) -> str:
        """Reason for which no comparison can be decided; empty for methods, which are compared over training runs."""
        return "" if self.method_groups else self.too_few(len(self.problems))

    def entrant(self, name: str) -> Entrant:
        return next(entrant for entrant in self.entrants if entrant.name == name)

    def spec(self, entrant: Entrant, seed: int) -> RunSpec:
        """Return the specification of a run; a duplicate derives its seed, since equal seeds would give equal runs."""
        if entrant.duplicate_of is not None:
            seed = int.from_bytes(hashlib.sha256(f"{entrant.name}:{seed}".encode()).digest()[:8]) >> 1
        # One lane: a run depends on its seed alone.
        return RunSpec(
            **entrant.common(EngineOptions), budget=self.budget, seed=seed, lanes=1, policy_choice=entrant.choice
        )

    def running_order(self, problems: Sequence[str]) -> tuple[str, ...]:
        """Return problems in running order: as declared, or shuffled by the digest under the e-process."""
        if self.stopping is StoppingRule.FIXED:
            return tuple(problems)
        return tuple(sorted(problems, key=lambda name: hashlib.sha256(f"{self.digest}:{name}".encode()).digest()))


class Extension(Value):
    """An amendment of a tournament: more problems or more seeds, for all entrants."""

    problems: tuple[Named, ...] = Field(default=(), max_length=10_000)
    """Problems to add."""
    seeds: tuple[Seed, ...] = Field(default=(), max_length=1000)
    """Seeds to add."""
    reason: str = Field(min_length=1, max_length=MAX_REASON)
    """Reason, stored with the amendment."""

    @model_validator(mode="after")
    def _something_is_added(self) -> Self:
        if not self.problems and not self.seeds:
            raise ValueError("the extension is empty: expected problems, seeds or both")
        return self


class Schedule(Value):
    """A tournament with its extensions: all problems and seeds to run."""

    declared: Tournament
    problems: tuple[str, ...]
    """All problems, in running order."""
    seeds: tuple[int, ...]

    @classmethod
    def of(cls, declared: Tournament, extensions: Sequence[Extension] = ()) -> Self:
        """Return the schedule of a declaration with its extensions applied in order."""
        schedule = cls(declared=declared, problems=declared.running_order(declared.problems), seeds=declared.seeds)
        for extension in extensions:
            schedule = schedule.extended(extension)
        return schedule

    def extended(self, more: Extension) -> Self:
        """Return the schedule with an extension.

        Raises:
            ConflictError: A problem or seed is already scheduled, seeds would change earlier bets of the e-process, or
                there are too many runs.
        """
        repeated = [f"problem {name!r}" for name in more.problems if name in self.problems]
        repeated += [f"seed {seed}" for seed in more.seeds if seed in self.seeds]
        if repeated:
            raise ConflictError(f"tournament {self.declared.slug!r} already has {repeated[0]}.")
        if len({*more.problems}) < len(more.problems) or len({*more.seeds}) < len(more.seeds):
            raise ConflictError("the extension repeats a problem or seed.", remedy="Name each once.")
        if more.seeds and self.declared.stopping is StoppingRule.E_PROCESS:
            raise ConflictError(
                "more seeds would change the e-process's bets on problems already inspected.",
                remedy="Extend by problems instead.",
            )
        problems = (*self.problems, *self.declared.running_order(more.problems))
        seeds = (*self.seeds, *more.seeds)
        if len(problems) * len(seeds) * len(self.declared.entrants) > MAX_RUNS:
            raise ConflictError(f"the tournament would have more than {MAX_RUNS:,} runs.")
        return self.model_copy(update={"problems": problems, "seeds": seeds})

    def plan(self) -> Iterator[PlannedRun]:
        """Yield runs in starting order; the entrants of one problem and seed are adjacent."""
        names = [entrant.name for entrant in self.declared.entrants]
        if self.declared.stopping is StoppingRule.FIXED:
            pairs = [(problem, seed) for seed in self.seeds for problem in self.problems]
        else:
            pairs = [(problem, seed) for problem in self.problems for seed in self.seeds]
        return (PlannedRun(problem, seed, name) for problem, seed in pairs for name in names)
