"""Parts of a tournament's report: the number with its interval, and what an entrant is worth beside its standing."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ReportModel(BaseModel):
    """Base of the parts: frozen; a newer server may add fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Estimate(ReportModel):
    """A number with what it stands on.

    Attributes:
        value: The estimate; None where there is none, and ``note`` says why.
        low: Lower end of the interval; None where it is withheld.
        high: Upper end; None where it is withheld or unbounded.
        level: Coverage of the interval.
        problems: Problems that it is of.
        runs: Runs that it is of.
        note: Why a part of it is not there.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    problems: int
    runs: int
    note: str = ""


class Draws(ReportModel):
    """What k runs of an entrant are worth, for every k up to the number of seeds.

    Attributes:
        pass_at: Chance that at least one of k runs reaches the target.
        best_at: Expected best score of k runs.
    """

    entrant: str
    k: tuple[int, ...]
    pass_at: tuple[Estimate, ...]
    best_at: tuple[Estimate, ...]


class Profile(ReportModel):
    """Performance profile: on which share of problems the entrant's ERT is within a factor of the best entrant's.

    Attributes:
        factors: Factors, the first is 1: how often it is (one of) the best.
        share: Shares of all problems, those that nobody solved too.
        problems: Problems with runs of all entrants.
    """

    entrant: str
    factors: tuple[float, ...]
    share: tuple[float, ...]
    problems: int


class Quality(ReportModel):
    """What the reward vectors of an entrant's runs are like; means over problems.

    Attributes:
        hypervolume: Share of the box that a run's final front dominates; its reference lies a tenth of every range
            below the worst end.
        diversity: Mean L1 distance between two candidates of a run that were scored and obey every constraint.
        diversity_all: The same with all others at 0: failing often can look like diversity.
    """

    entrant: str
    hypervolume: Estimate
    diversity: Estimate
    diversity_all: Estimate


class PolicyHealth(ReportModel):
    """How a policy did as a policy, within one entrant; means over problems of means over runs.

    Attributes:
        rollouts: Completions.
        answers: Answers that were read out of them.
        entropy: Nats per token, from the log-probabilities of the sampled tokens.
        unreadable: Share of completions out of which nothing could be read.
        failed: Share of answers that could not be scored, or violate a constraint.
        duplicates: Share of answers that repeat a program of their run.
        reward: Mean score of an answer, failed ones 0.
        within: Mean L1 distance between two scored answers of one completion.
        across: The same of two completions of a run.
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
        training: SHA-256 of what defines the training.
        policies: Its checkpoints that take part, the earliest first.
        source: ``checkpoints``: entropy and reward of each as this tournament measured them; ``manifest``: as the
            training wrote them down.
        entropy: Entropies that were fitted, nats per token.
        reward: Mean rewards of an answer there.
        a: How much reward a unit of e^H is worth; None where nothing could be fitted, and ``note`` says why.
        b: Intercept.
        ceiling: Reward at entropy 0 by the law, b − a.
        r_squared: Share of the reward's variance that the law explains.
        r_squared_line: The same for a straight line in H: where it is as high, the law is not shown.
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
        """Return a, b and the ceiling; None where nothing was fitted, or where a straight line explains as much."""
        if self.a is None or self.b is None or self.ceiling is None or self.r_squared is None:
            return None
        return None if self.r_squared <= (self.r_squared_line or 0.0) else (self.a, self.b, self.ceiling)


class Reached(ReportModel):
    """Share of (problem, seed) pairs reached against what was spent.

    Attributes:
        spent: Where the curve steps; thinned where there are many steps.
        share: Share reached at or before.
        pairs: Pairs that it is of.
        censored: Pairs that ended before the target.
        sound_until: First of these ends; beyond it the curve is a lower bound.
    """

    entrant: str
    unit: str
    spent: tuple[float, ...]
    share: tuple[float, ...]
    pairs: int
    censored: int
    sound_until: float | None


class CurvePoint(ReportModel):
    """What the law predicts at a budget; without ends where the interval is withheld."""

    evaluations: float
    value: float
    low: float | None = None
    high: float | None = None


class BudgetLaw(ReportModel):
    """The law of diminishing returns fitted to the solve rate, or to the best score so far, against the budget.

    Attributes:
        budgets: Budgets that were measured.
        measured: Mean over problems there.
        predicted: The law at and beyond the budget; what is withheld is not there, and ``note`` says why.
        worst_residual: Largest difference between the law and what was measured.
    """

    entrant: str
    budgets: tuple[float, ...]
    measured: tuple[float, ...]
    predicted: tuple[CurvePoint, ...]
    worst_residual: float | None
    problems: int
    note: str


class Pairwise(ReportModel):
    """Chance that a run of A reaches the target with fewer evaluations than one of B, ties halved."""

    a: str
    b: str
    chance: Estimate


class Strength(ReportModel):
    """Bradley–Terry strength on a log scale, mean 0.

    Attributes:
        low: Lower end of the interval; None where it is withheld.
        high: Upper end; None where it is withheld.
        note: Why it is withheld.
    """

    entrant: str
    strength: float
    low: float | None = None
    high: float | None = None
    note: str = ""


class Cost(ReportModel):
    """What an entrant spent and what failed."""

    entrant: str
    runs: int
    evaluations: int
    tokens: int
    evaluated: int
    failed: int
    duplicates: int
