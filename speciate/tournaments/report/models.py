"""What a tournament's report says, in the order in which it is read. Every number comes with n, and says its test."""

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
    """What a comparison says."""

    BETTER = "better"
    WORSE = "worse"
    NOT_ENOUGH_EVIDENCE = "not enough evidence"
    UNFINISHED = "unfinished"
    EXPLORATORY = "exploratory"
    """The tournament was extended after runs had ended, so that no level holds."""


class ProblemFacts(ReportModel):
    """A problem of the design box."""

    name: str
    digest: str
    evaluator_digest: str
    target: str
    forgeable: bool


class PolicyFacts(ReportModel):
    """A policy of the design box."""

    name: str
    digest: str
    checkpoint_digest: str | None = None
    training_method: str | None = None
    training: Training | None = None


class Amendment(ReportModel):
    """An extension as it was made.

    Attributes:
        ended_runs: How many runs had ended: more than none means that results could have been seen.
    """

    extension: Extension
    ended_runs: int


class Design(ReportModel):
    """The design box: what was declared before the first run, with digests.

    Attributes:
        planned: Runs of the plan, with amendments.
        decided_after: Problems after which the e-process had decided everything; what came later is left out.
        k: The k of pass@k and best@k: seeds of a problem.
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
    """How an entrant stands by itself.

    Attributes:
        policy: Who proposes; several with their weights where it is an ensemble.
        mutator: Who changes parents, alike.
        unlocked: Problems of which at least one run reached the target.
        pass_1: Chance that one run reaches it.
        pass_k: Chance that at least one of k runs does.
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
    """An entrant against another, on the problems and seeds on which both completed.

    Attributes:
        difference: Of the primary metric, A − B.
        pairs: Pairs of runs that are compared.
        missing_pairs: Pairs left out because a run failed or was cancelled.
        wins: Problems on which A is better; ``ties``, ``losses`` alike.
        p_value: Of the paired sign-flip test over problems; None while it is withheld.
        exact: Whether every sign pattern was tried.
        holm: That p-value, adjusted for the number of comparisons.
        both: Problems that both unlocked; ``only_a``, ``only_b``, ``neither`` alike.
        mcnemar: Exact McNemar p-value of these sets; None while it is withheld.
        e_value: Evidence of the e-process; may be looked at any time.
        e_threshold: What the e-value has passed when it decides: comparisons ÷ α.
        e_problems: Problems that it has bet on.
        note: Why something is withheld, or what the verdict stands on.
    """

    a: str
    b: str
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


class Standings(ReportModel):
    """Who stands where, and what is known about differences."""

    slug: str
    metric: str
    ended: int
    planned: int
    standings: tuple[Standing, ...]
    comparisons: tuple[Comparison, ...]


class MatrixRow(ReportModel):
    """A problem with the successes of every entrant, and the runs that they are of."""

    problem: str
    successes: tuple[int, ...]
    runs: tuple[int, ...]


class Matrix(ReportModel):
    """Problems × entrants: runs that reached the target, of how many."""

    entrants: tuple[str, ...]
    rows: tuple[MatrixRow, ...]


class MissingRun(ReportModel):
    """A run that counts for nothing, and why."""

    entrant: str
    problem: str
    seed: int
    reason: str


class Report(ReportModel):
    """Everything, in the order in which it is read.

    Attributes:
        budget_laws: Of the solve rate.
        score_laws: Of the best score.
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
