"""Models of a report's measures: estimates with intervals, curves, laws, quality and cost."""

from pydantic import ConfigDict, Field

from speciate.domain.documented import Documented


class ReportModel(Documented):
    """Base of the report's models: frozen, and tolerant of fields that a newer server adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Estimate(ReportModel):
    """A number with its interval and sample sizes."""

    value: float | None
    """The estimate, or None; ``note`` gives the reason."""
    low: float | None = None
    """Lower end of the interval; None if withheld."""
    high: float | None = None
    """Upper end; None if withheld or unbounded."""
    level: float | None = None
    """Coverage of the interval."""
    problems: int
    """Number of problems behind the estimate."""
    runs: int
    """Number of runs behind it."""
    note: str = ""
    """Reason why the value, the interval or an end is missing."""


class Draws(ReportModel):
    """pass@k and best@k of an entrant, for every k up to the number of seeds."""

    entrant: str
    k: tuple[int, ...]
    pass_at: tuple[Estimate, ...]
    """Probability that at least one of k runs reaches the target."""
    best_at: tuple[Estimate, ...]
    """Expected best score of k runs."""


class Quality(ReportModel):
    """Quality of the reward vectors in an entrant's runs; means over problems."""

    entrant: str
    hypervolume: Estimate
    """Share of the box that a run's final front dominates; the reference lies a tenth of every range below the worst
    end."""
    diversity: Estimate
    """Mean L1 distance between two feasible candidates of a run."""
    diversity_all: Estimate
    """The same with all other candidates at 0: frequent failure can look like diversity."""


class NoisyScore(ReportModel):
    """What an entrant's runs of a noisy problem reached: the mean of their scores after the end."""

    problem: str
    entrant: str
    score: float
    margin: float
    """Half the width of its 95 % interval, by the noise of evaluations; runs differ besides."""
    runs: int


class PolicyHealth(ReportModel):
    """Health of a policy within one entrant; means over problems of means over runs."""

    entrant: str
    policy: str
    rollouts: int
    """Completions."""
    answers: int
    """Answers read from them."""
    entropy: Estimate
    """Nats per token, from the log-probabilities of the sampled tokens."""
    unreadable: Estimate
    """Share of completions without a readable answer."""
    failed: Estimate
    """Share of answers that were not scored or are infeasible."""
    duplicates: Estimate
    """Share of answers that repeat a program of their run."""
    reward: Estimate
    """Mean score of an answer, failed ones 0."""
    within: Estimate
    """Mean L1 distance between two feasible answers of one completion."""
    across: Estimate
    """The same for two completions of a run."""


class Reached(ReportModel):
    """Share of (problem, seed) pairs that reached the target, by cost."""

    entrant: str
    unit: str
    spent: tuple[float, ...]
    """Positions of the curve's steps; thinned if there are many."""
    share: tuple[float, ...]
    """Share reached at or before each step."""
    pairs: int
    """Number of pairs."""
    censored: int
    """Pairs that ended without reaching the target."""
    sound_until: float | None
    """Cost of the first such end; beyond it the curve is a lower bound."""


class CurvePoint(ReportModel):
    """Prediction of a law at a budget, without ends if the interval is withheld."""

    evaluations: float
    value: float
    low: float | None = None
    high: float | None = None


class BudgetLaw(ReportModel):
    """The law of diminishing returns, fitted to the solve rate or to the best score so far by budget."""

    entrant: str
    budgets: tuple[float, ...]
    """Measured budgets."""
    measured: tuple[float, ...]
    """Mean over problems at these budgets."""
    predicted: tuple[CurvePoint, ...]
    """The law at and beyond the budget; empty if withheld, and ``note`` gives the reason."""
    worst_residual: float | None
    """Largest difference between the law and the measurements."""
    problems: int
    note: str


class Pairwise(ReportModel):
    """Probability that a run of A reaches the target with fewer evaluations than a run of B, ties halved."""

    a: str
    b: str
    chance: Estimate


class Strength(ReportModel):
    """Bradley–Terry strength on a log scale, mean 0."""

    entrant: str
    strength: float
    low: float | None = None
    """Lower end of the interval; None if withheld."""
    high: float | None = None
    """Upper end; None if withheld."""
    note: str = ""
    """Reason for withholding."""


class Cost(ReportModel):
    entrant: str
    runs: int
    evaluations: int
    tokens: int
    dollars: float = 0.0
    """US dollars by the prices of its policies; 0 without prices."""
    evaluated: int
    failed: int
    duplicates: int


class Execution(ReportModel):
    """How an entrant's runs went: facts that no estimate uses."""

    entrant: str
    failures: dict[str, int]
    """Candidates without rewards, by kind of failure."""
    versions: tuple[str, ...] = ()
    """Versions of its engine that took part."""
    processor_s: float = 0.0
    """Processor seconds of its engine's processes."""
    refused: dict[str, int] = Field(default_factory=dict)
    """Requests of its engine that were refused, by kind."""
    lost: int = 0
    """Sessions of its engine that lost their runner."""
