"""Models of a report's measures: estimates with intervals, curves, laws, quality and cost."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ReportModel(BaseModel):
    """Base of the report's models: frozen, and tolerant of fields that a newer server adds."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Estimate(ReportModel):
    """A number with its interval and sample sizes.

    Attributes:
        value: The estimate, or None; ``note`` gives the reason.
        low: Lower end of the interval; None if withheld.
        high: Upper end; None if withheld or unbounded.
        level: Coverage of the interval.
        problems: Number of problems behind the estimate.
        runs: Number of runs behind it.
        note: Reason why the value, the interval or an end is missing.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    problems: int
    runs: int
    note: str = ""


class Draws(ReportModel):
    """pass@k and best@k of an entrant, for every k up to the number of seeds.

    Attributes:
        pass_at: Probability that at least one of k runs reaches the target.
        best_at: Expected best score of k runs.
    """

    entrant: str
    k: tuple[int, ...]
    pass_at: tuple[Estimate, ...]
    best_at: tuple[Estimate, ...]


class Profile(ReportModel):
    """Performance profile: the share of problems on which the entrant's ERT is within a factor of the best entrant's.

    Attributes:
        factors: Factors, starting with 1 (best or tied).
        share: Shares of all problems, unsolved ones included.
        problems: Problems with runs of all entrants.
    """

    entrant: str
    factors: tuple[float, ...]
    share: tuple[float, ...]
    problems: int


class Quality(ReportModel):
    """Quality of the reward vectors in an entrant's runs; means over problems.

    Attributes:
        hypervolume: Share of the box that a run's final front dominates; the reference lies a tenth of every range
            below the worst end.
        diversity: Mean L1 distance between two feasible candidates of a run.
        diversity_all: The same with all other candidates at 0: frequent failure can look like diversity.
    """

    entrant: str
    hypervolume: Estimate
    diversity: Estimate
    diversity_all: Estimate


class PolicyHealth(ReportModel):
    """Health of a policy within one entrant; means over problems of means over runs.

    Attributes:
        rollouts: Completions.
        answers: Answers read from them.
        entropy: Nats per token, from the log-probabilities of the sampled tokens.
        unreadable: Share of completions without a readable answer.
        failed: Share of answers that were not scored or are infeasible.
        duplicates: Share of answers that repeat a program of their run.
        reward: Mean score of an answer, failed ones 0.
        within: Mean L1 distance between two feasible answers of one completion.
        across: The same for two completions of a run.
    """

    entrant: str
    policy: str
    rollouts: int
    answers: int
    entropy: Estimate
    unreadable: Estimate
    failed: Estimate
    duplicates: Estimate
    reward: Estimate
    within: Estimate
    across: Estimate


class EntropyFit(ReportModel):
    """The law R = −a·e^H + b over one training (Cui et al., arXiv 2505.22617).

    Attributes:
        training: SHA-256 of the training's definition.
        policies: Its checkpoints in the tournament, earliest first.
        source: ``checkpoints``: measured in this tournament; ``manifest``: recorded by the training.
        entropy: Fitted entropies, nats per token.
        reward: Mean rewards of an answer at these entropies.
        a: Reward per unit of e^H; None without a fit, and ``note`` gives the reason.
        b: Intercept.
        ceiling: Predicted reward at entropy 0, b − a.
        r_squared: Share of the reward's variance that the law explains.
        r_squared_line: The same for a straight line in H; if it is as high, the data do not support the law.
    """

    training: str
    policies: tuple[str, ...]
    source: str
    entropy: tuple[float, ...]
    reward: tuple[float, ...]
    a: float | None = None
    b: float | None = None
    ceiling: float | None = None
    r_squared: float | None = None
    r_squared_line: float | None = None
    note: str = ""

    @property
    def shown(self) -> tuple[float, float, float] | None:
        """Return a, b and the ceiling; None without a fit, or if a straight line explains as much."""
        if self.a is None or self.b is None or self.ceiling is None or self.r_squared is None:
            return None
        return None if self.r_squared <= (self.r_squared_line or 0.0) else (self.a, self.b, self.ceiling)


class Reached(ReportModel):
    """Share of (problem, seed) pairs that reached the target, by cost.

    Attributes:
        spent: Positions of the curve's steps; thinned if there are many.
        share: Share reached at or before each step.
        pairs: Number of pairs.
        censored: Pairs that ended without reaching the target.
        sound_until: Cost of the first such end; beyond it the curve is a lower bound.
    """

    entrant: str
    unit: str
    spent: tuple[float, ...]
    share: tuple[float, ...]
    pairs: int
    censored: int
    sound_until: float | None


class CurvePoint(ReportModel):
    """Prediction of a law at a budget, without ends if the interval is withheld."""

    evaluations: float
    value: float
    low: float | None = None
    high: float | None = None


class BudgetLaw(ReportModel):
    """The law of diminishing returns, fitted to the solve rate or to the best score so far by budget.

    Attributes:
        budgets: Measured budgets.
        measured: Mean over problems at these budgets.
        predicted: The law at and beyond the budget; empty if withheld, and ``note`` gives the reason.
        worst_residual: Largest difference between the law and the measurements.
    """

    entrant: str
    budgets: tuple[float, ...]
    measured: tuple[float, ...]
    predicted: tuple[CurvePoint, ...]
    worst_residual: float | None
    problems: int
    note: str


class Pairwise(ReportModel):
    """Probability that a run of A reaches the target with fewer evaluations than a run of B, ties halved."""

    a: str
    b: str
    chance: Estimate


class Strength(ReportModel):
    """Bradley–Terry strength on a log scale, mean 0.

    Attributes:
        low: Lower end of the interval; None if withheld.
        high: Upper end; None if withheld.
        note: Reason for withholding.
    """

    entrant: str
    strength: float
    low: float | None = None
    high: float | None = None
    note: str = ""


class Cost(ReportModel):
    """Cost and failures of an entrant.

    Attributes:
        dollars: US dollars by the prices of its policies; 0 without prices.
    """

    entrant: str
    runs: int
    evaluations: int
    tokens: int
    dollars: float = 0.0
    evaluated: int
    failed: int
    duplicates: int
