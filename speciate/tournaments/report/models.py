"""Models of a tournament's report, in reading order. Every number carries its sample size and names its test."""

from __future__ import annotations

from enum import StrEnum

from speciate.domain.policy import Training
from speciate.domain.tournament import Extension, Tournament
from speciate.tournaments.report.measures import (
    BudgetLaw,
    Cost,
    Draws,
    EntropyFit,
    Estimate,
    Pairwise,
    PolicyHealth,
    Profile,
    Quality,
    Reached,
    ReportModel,
    Strength,
)


class Verdict(StrEnum):
    """Outcome of a comparison."""

    BETTER = "better"
    WORSE = "worse"
    NOT_ENOUGH_EVIDENCE = "not enough evidence"
    UNFINISHED = "unfinished"
    EXPLORATORY = "exploratory"
    """The tournament was extended after runs had ended, so that its p-values are not valid."""


class Subject(StrEnum):
    """What two compared entrants differ in."""

    CHECKPOINT = "checkpoint"
    """Their policies."""
    SEARCH = "search"
    """Strategy, options, mutator or batches."""
    ENTRANT = "entrant"
    """Both."""


class ProblemFacts(ReportModel):
    """A problem in the design section."""

    name: str
    digest: str
    evaluator_digest: str
    target: str
    forgeable: bool
    attested: bool = False


class PolicyFacts(ReportModel):
    """A policy in the design section."""

    name: str
    digest: str
    checkpoint_digest: str | None = None
    training_method: str | None = None
    training: Training | None = None


class Amendment(ReportModel):
    """An extension with the state of the tournament when it was made.

    Attributes:
        ended_runs: Runs that had ended; above 0 the results may have been seen.
    """

    extension: Extension
    ended_runs: int


class Design(ReportModel):
    """The declaration before the first run, with digests.

    Attributes:
        planned: Runs of the plan, amendments included.
        decided_after: Problems after which the e-process had decided everything; later problems are excluded.
        k: The k of pass@k and best@k: seeds per problem.
    """

    declared: Tournament
    digest: str
    amendments: tuple[Amendment, ...]
    problems: tuple[ProblemFacts, ...]
    policies: tuple[PolicyFacts, ...]
    seeds: tuple[int, ...]
    planned: int
    ended: int
    missing: int
    pending: int
    decided_after: int | None
    k: int


class Standing(ReportModel):
    """Measures of one entrant.

    Attributes:
        policy: Proposer; an ensemble with its weights.
        mutator: Mutator; an ensemble with its weights.
        unlocked: Problems on which at least one run reached the target.
        pass_1: Probability that one run reaches the target.
        pass_k: Probability that at least one of k runs does.
        best_1: Expected best score of one run.
        best_k: Expected best score of k runs.
        ert: Evaluations of all runs ÷ successes.
        ert_tokens: Tokens of all runs ÷ successes.
    """

    entrant: str
    policy: str
    mutator: str | None
    strategy: str
    ended: int
    missing: int
    unlocked: int
    pass_1: Estimate
    pass_k: Estimate
    best_1: Estimate
    best_k: Estimate
    ert: Estimate
    ert_tokens: Estimate


class Comparison(ReportModel):
    """Comparison of two entrants on the problems and seeds that both completed.

    Attributes:
        subject: What the entrants differ in. A statement about checkpoints is none about their training methods.
        difference: Primary metric, A − B.
        pairs: Compared pairs of runs.
        missing_pairs: Pairs excluded because a run failed or was cancelled.
        wins: Problems on which A is better; ``ties`` and ``losses`` likewise.
        p_value: Of the paired sign-flip test over problems; None while withheld.
        exact: True if every sign pattern was enumerated.
        holm: The p-value adjusted for the number of comparisons.
        both: Problems that both unlocked; ``only_a``, ``only_b``, ``neither`` likewise.
        mcnemar: Exact McNemar p-value of these sets, which decides nothing; None while withheld.
        e_value: Evidence of the e-process; valid at any time.
        e_threshold: The e-value at which the e-process decides: comparisons ÷ α.
        e_problems: Problems that it has bet on.
        note: Basis of the verdict, or the reason for withholding a number.
    """

    a: str
    b: str
    subject: Subject = Subject.ENTRANT
    difference: Estimate
    pairs: int
    missing_pairs: int
    wins: int
    ties: int
    losses: int
    p_value: float | None
    exact: bool
    holm: float | None
    both: int
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    neither: int
    mcnemar: float | None
    e_value: float | None
    e_threshold: float
    e_problems: int
    verdict: Verdict
    note: str


class TrainingRun(ReportModel):
    """One training run of a method.

    Attributes:
        value: Mean of the primary metric over the problems; None without a completed run.
    """

    entrant: str
    training_seed: int
    value: float | None


class MethodComparison(ReportModel):
    """Comparison of two training methods; the training run is the unit.

    Attributes:
        a: Method.
        b: Method.
        search: How the policies of both are searched.
        runs_a: Training runs of A, by training seed; ``runs_b`` likewise.
        paired: True if both methods declare the same training seeds.
        problems: Problems with a search run of every training run.
        missing_pairs: (problem, seed) pairs excluded because a search run failed or was cancelled.
        difference: Mean over training runs of the primary metric, A − B; None without a training run of each.
        low: Lower end of the t interval over training runs; None while withheld.
        high: Upper end.
        level: Coverage of the interval.
        wins: Training seeds on which A is better, or pairs of runs if unpaired; ``ties`` and ``losses`` likewise.
        p_value: Of the permutation test over training runs; None while withheld.
        exact: True if every permutation was enumerated.
        holm: The p-value adjusted for the number of method comparisons.
        smallest_p: Smallest p-value that so many training runs can reach.
        note: Basis of the verdict, or the reason for withholding a number.
    """

    a: str
    b: str
    search: str
    runs_a: tuple[TrainingRun, ...]
    runs_b: tuple[TrainingRun, ...]
    paired: bool
    problems: int
    missing_pairs: int
    difference: float | None
    low: float | None
    high: float | None
    level: float
    wins: int
    ties: int
    losses: int
    p_value: float | None
    exact: bool
    holm: float | None
    smallest_p: float
    verdict: Verdict
    note: str


class Standings(ReportModel):
    """Standings of all entrants, with the comparisons between them and between their training methods."""

    slug: str
    metric: str
    ended: int
    planned: int
    standings: tuple[Standing, ...]
    comparisons: tuple[Comparison, ...]
    methods: tuple[MethodComparison, ...] = ()


class MatrixRow(ReportModel):
    """Successes and runs of every entrant on one problem."""

    problem: str
    successes: tuple[int, ...]
    runs: tuple[int, ...]


class Matrix(ReportModel):
    """Unlock matrix, problems × entrants: runs that reached the target, of completed runs."""

    entrants: tuple[str, ...]
    rows: tuple[MatrixRow, ...]


class MissingRun(ReportModel):
    """A failed or cancelled run with its reason."""

    entrant: str
    problem: str
    seed: int
    reason: str


class Report(ReportModel):
    """The whole report, in reading order.

    Attributes:
        budget_laws: Laws of the solve rate.
        score_laws: Laws of the best score.
    """

    design: Design
    standings: Standings
    draws: tuple[Draws, ...] = ()
    matrix: Matrix
    reached: tuple[Reached, ...]
    profiles: tuple[Profile, ...] = ()
    budget_laws: tuple[BudgetLaw, ...]
    score_laws: tuple[BudgetLaw, ...] = ()
    pairwise: tuple[Pairwise, ...]
    strengths: tuple[Strength, ...]
    qualities: tuple[Quality, ...] = ()
    health: tuple[PolicyHealth, ...] = ()
    entropy_fits: tuple[EntropyFit, ...] = ()
    costs: tuple[Cost, ...]
    missing: tuple[MissingRun, ...]
