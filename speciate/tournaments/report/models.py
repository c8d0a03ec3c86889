"""Models of a tournament's report, in reading order. Every number carries its sample size and names its test."""

from enum import StrEnum

from speciate.domain.tournament import Extension, Metric, Tournament
from speciate.tournaments.report.measures import (
    BudgetLaw,
    Cost,
    Draws,
    Estimate,
    Execution,
    NoisyScore,
    Pairwise,
    PolicyHealth,
    Quality,
    Reached,
    ReportModel,
    Strength,
)


class Verdict(StrEnum):
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
    name: str
    digest: str
    evaluator_digest: str
    target: str
    forgeable: bool
    attested: bool = False


class PolicyFacts(ReportModel):
    name: str
    digest: str
    checkpoint_digest: str | None = None
    training_method: str | None = None


class Amendment(ReportModel):
    """An extension with the state of the tournament when it was made."""

    extension: Extension
    ended_runs: int
    """Runs that had ended; above 0 the results may have been seen."""


class Design(ReportModel):
    """The declaration before the first run, with digests."""

    declared: Tournament
    digest: str
    amendments: tuple[Amendment, ...]
    problems: tuple[ProblemFacts, ...]
    policies: tuple[PolicyFacts, ...]
    seeds: tuple[int, ...]
    planned: int
    """Runs of the plan, amendments included."""
    ended: int
    missing: int
    pending: int
    decided_after: int | None
    """Problems after which the e-process had decided everything; later problems are excluded."""
    k: int
    """The k of pass@k and best@k: seeds per problem."""


class Standing(ReportModel):
    """Measures of one entrant."""

    entrant: str
    policy: str
    """Proposer; an ensemble with its weights."""
    mutator: str | None
    """Mutator; an ensemble with its weights."""
    strategy: str
    ended: int
    missing: int
    unlocked: int
    """Problems on which at least one run reached the target."""
    pass_1: Estimate
    """Probability that one run reaches the target."""
    pass_k: Estimate
    """Probability that at least one of k runs does."""
    best_1: Estimate
    """Expected best score of one run."""
    best_k: Estimate
    """Expected best score of k runs."""
    area: Estimate = Estimate(value=None, problems=0, runs=0)
    """Expected mean, over the budgets, of the best score so far of one run."""
    ert: Estimate
    """Evaluations of all runs, each until its target or its end, ÷ successes; ``ert_tokens`` likewise."""
    ert_tokens: Estimate

    def measure(self, metric: Metric) -> Estimate:
        """Return the measure of one run that the metric compares; pass@1 for metrics of targets."""
        return {Metric.BEST_SCORE: self.best_1, Metric.AREA: self.area}.get(metric, self.pass_1)


class Comparison(ReportModel):
    """Comparison of two entrants on the problems and seeds that both completed."""

    a: str
    b: str
    subject: Subject = Subject.ENTRANT
    """What the entrants differ in. A statement about checkpoints is none about their training methods."""
    difference: Estimate
    """Primary metric, A − B."""
    spread: float | None = None
    """Standard deviation of that difference between problems; None with fewer than two."""
    pairs: int
    """Compared pairs of runs."""
    missing_pairs: int
    """Pairs excluded because a run failed or was cancelled."""
    wins: int
    """Problems on which A is better; ``ties`` and ``losses`` likewise."""
    ties: int
    losses: int
    p_value: float | None
    """Of the paired sign-flip test over problems; None while withheld."""
    exact: bool
    """True if every sign pattern was enumerated."""
    holm: float | None
    """The p-value adjusted for the number of comparisons."""
    both: int
    """Problems that both unlocked; ``only_a``, ``only_b``, ``neither`` likewise."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    neither: int
    mcnemar: float | None
    """Exact McNemar p-value of these sets, which decides nothing; None while withheld."""
    e_value: float | None
    """Evidence of the e-process; valid at any time."""
    e_threshold: float
    """The e-value at which the e-process decides: comparisons ÷ α."""
    e_problems: int
    """Problems that it has bet on."""
    verdict: Verdict
    note: str
    """Basis of the verdict, or the reason for withholding a number."""


class TrainingRun(ReportModel):
    """One training run of a method."""

    entrant: str
    training_seed: int
    value: float | None
    """Mean of the primary metric over the problems; None without a completed run."""


class MethodComparison(ReportModel):
    """Comparison of two training methods; the training run is the unit."""

    a: str
    b: str
    search: str
    """How the policies of both are searched."""
    runs_a: tuple[TrainingRun, ...]
    """Training runs of A, by training seed; ``runs_b`` likewise."""
    runs_b: tuple[TrainingRun, ...]
    paired: bool
    """True if both methods declare the same training seeds."""
    problems: int
    """Problems with a search run of every training run."""
    missing_pairs: int
    """(problem, seed) pairs excluded because a search run failed or was cancelled."""
    difference: float | None = None
    """Mean over training runs of the primary metric, A − B; None without a training run of each."""
    low: float | None = None
    """Lower end of the t interval over training runs; None while withheld."""
    high: float | None = None
    """Upper end."""
    level: float
    """Coverage of the interval."""
    wins: int = 0
    """Training seeds on which A is better, or pairs of runs if unpaired; ``ties`` and ``losses`` likewise."""
    ties: int = 0
    losses: int = 0
    p_value: float | None = None
    """Of the permutation test over training runs; None while withheld."""
    exact: bool = False
    """True if every permutation was enumerated."""
    holm: float | None
    """The p-value adjusted for the number of method comparisons."""
    smallest_p: float
    """Smallest p-value that so many training runs can reach."""
    verdict: Verdict
    note: str
    """Basis of the verdict, or the reason for withholding a number."""


class Standings(ReportModel):
    """Standings of all entrants, with the comparisons between them and between their training methods."""

    slug: str
    metric: str
    ended: int
    planned: int
    standings: tuple[Standing, ...]
    comparisons: tuple[Comparison, ...]
    nulls: tuple[Comparison, ...] = ()
    """Duplicates with the entrants that they repeat."""
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
    entrant: str
    problem: str
    seed: int
    reason: str


class Report(ReportModel):
    design: Design
    standings: Standings
    draws: tuple[Draws, ...] = ()
    matrix: Matrix
    reached: tuple[Reached, ...]
    budget_laws: tuple[BudgetLaw, ...]
    """Laws of the solve rate."""
    score_laws: tuple[BudgetLaw, ...] = ()
    """Laws of the best score."""
    pairwise: tuple[Pairwise, ...]
    strengths: tuple[Strength, ...]
    noisy: tuple[NoisyScore, ...] = ()
    qualities: tuple[Quality, ...] = ()
    health: tuple[PolicyHealth, ...] = ()
    costs: tuple[Cost, ...]
    executions: tuple[Execution, ...] = ()
    missing: tuple[MissingRun, ...]
    warnings: tuple[str, ...] = ()
    """What makes the results doubtful, in sentences."""
