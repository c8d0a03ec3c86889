"""Comparisons of a tournament: paired by problem and seed, never looked at too early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speciate.domain.tournament import Metric, Schedule, StoppingRule
from speciate.tournaments.report.models import Amendment, Comparison, Verdict
from speciate.tournaments.report.resamples import Resamples, rng_for
from speciate.tournaments.report.results import MISSING, PENDING, Results
from speciate.tournaments.statistics.arrays import BoolArray, FloatArray
from speciate.tournaments.statistics.e_process import EProcess, e_process
from speciate.tournaments.statistics.significance import SignFlip, holm, mcnemar, sign_flips

FLIPS = 10_000
"""Sign patterns that are drawn where there are too many to try all; more of them where the level asks for smaller p."""
_MOST_FLIPS = 1_000_000


@dataclass(frozen=True, eq=False, slots=True)
class Paired:
    """Two entrants on what both completed.

    Attributes:
        both: Which (problem, seed) pairs both completed, shape (n_problems, n_seeds).
        used: Indices of problems with at least one such pair, shape (n_used,).
        differences: Of the metric, A − B, shape (n_used,).
        missing: Pairs that a failed or cancelled run left out.
        reached: Problems of ``used`` that A and that B reached, over both's seeds, shape (2, n_used).
    """

    both: BoolArray
    used: np.ndarray[tuple[int], np.dtype[np.int64]]
    differences: FloatArray
    missing: int
    reached: BoolArray


def pair_up(schedule: Schedule, results: Results, a: str, b: str) -> Paired:
    """Pair two entrants by name; incomplete pairs are left out and counted."""
    names = [entrant.name for entrant in schedule.declared.entrants]
    i, j = names.index(a), names.index(b)
    state = results.state[..., [i, j]]
    both = results.ended[..., i] & results.ended[..., j]
    lost = (state == MISSING).any(axis=-1) & (state != PENDING).all(axis=-1)
    used = np.flatnonzero(both.any(axis=1))
    kept = both[used][..., None]
    successes = (results.reached[used][..., [i, j]] & kept).sum(axis=1)
    if schedule.declared.metric is Metric.SOLVE_RATE:
        values = successes / kept.sum(axis=1)
    else:
        spent = (results.evaluations[used][..., [i, j]] * kept).sum(axis=1)
        values = -np.log(np.maximum(spent, 1.0) / np.maximum(successes, 0.5))
    return Paired(both, used, values[:, 0] - values[:, 1], int(lost.sum()), (successes > 0).T)


def evidence(schedule: Schedule, results: Results, paired: Paired) -> EProcess | None:
    """Return the e-process over the leading problems that are complete for all entrants; None with no pair there."""
    leading = paired.used < results.complete_problems
    if not leading.any():
        return None
    return e_process(paired.differences[leading], schedule.declared.alpha / len(schedule.declared.comparisons))


def decided_after(schedule: Schedule, results: Results) -> int | None:
    """Return after how many problems the e-process had decided every comparison; None while it has not."""
    if schedule.declared.stopping is not StoppingRule.E_PROCESS:
        return None
    last = 0
    for a, b in schedule.declared.comparisons:
        paired = pair_up(schedule, results, a, b)
        found = evidence(schedule, results, paired)
        if found is None or found.stopped_at is None:
            return None
        last = max(last, int(paired.used[found.stopped_at - 1]) + 1)
    return last


def withheld_from_contrasts(schedule: Schedule, results: Results) -> str:
    """Return why nothing that sets entrants against each other has an interval; nothing where all of it may have."""
    if schedule.declared.stopping is StoppingRule.E_PROCESS:
        return "interval withheld: none holds under a rule that stops early"
    # An interval that is looked at again and again misses more often than it says, like any test.
    return "interval withheld until all runs have ended" if (results.state == PENDING).any() else ""


def compare(
    schedule: Schedule, amendments: Sequence[Amendment], results: Results, names: Sequence[str], resamples: Resamples
) -> tuple[Comparison, ...]:
    """Return every declared comparison.

    Args:
        schedule: What was declared.
        amendments: Extensions as they were made.
        results: What is known.
        names: Names of the problems, in the order of ``results``.
        resamples: Problems drawn again and again.
    """
    finished = not bool((results.state == PENDING).any())
    fixed = schedule.declared.stopping is StoppingRule.FIXED
    pairs = [pair_up(schedule, results, a, b) for a, b in schedule.declared.comparisons]
    tested: list[SignFlip | None] = [None] * len(pairs)
    if fixed and finished and (some := [i for i, pair in enumerate(pairs) if len(pair.used)]):
        # Of n patterns no p is below 1 / (n + 1), which Holm multiplies by the number of comparisons.
        draws = max(FLIPS, math.ceil(min(2 * len(pairs) / schedule.declared.alpha, _MOST_FLIPS)))
        flips = sign_flips([pairs[i].differences for i in some], rng_for(schedule, 0), draws)
        for i, flip in zip(some, flips, strict=True):
            tested[i] = flip
    # A comparison without any pair cannot be tested: it counts as one that does not reject.
    adjusted = holm([1.0 if test is None else test.p_value for test in tested])
    looked = any(amendment.ended_runs > 0 for amendment in amendments)
    return tuple(
        _comparison(schedule, results, names, i, pairs[i], tested[i], float(adjusted[i]), finished, looked, resamples)
        for i in range(len(pairs))
    )


def _comparison(
    schedule: Schedule,
    results: Results,
    names: Sequence[str],
    i: int,
    paired: Paired,
    test: SignFlip | None,
    adjusted: float,
    finished: bool,
    looked: bool,
    resamples: Resamples,
) -> Comparison:
    a, b = schedule.declared.comparisons[i]
    pairs = int(paired.both.sum())
    # More seeds for problems that were looked at would change bets that were made.
    found = None if looked and schedule.declared.stopping is StoppingRule.FIXED else evidence(schedule, results, paired)
    # Wealth is read where it first reached the threshold, if that is what the tournament stops at: what comes later was
    # not needed. Under the other rule it is that of all problems, whatever their order.
    stopped = None if found is None or schedule.declared.stopping is StoppingRule.FIXED else found.stopped_at
    bets = 0 if found is None else stopped or len(found.log_a)
    settled = None if found is None else EProcess(found.log_a[:bets], found.log_b[:bets], found.threshold, None)
    table = mcnemar(*paired.reached) if len(paired.used) else None
    only_a, only_b = paired.reached[0] & ~paired.reached[1], paired.reached[1] & ~paired.reached[0]
    verdict, note = _verdict(schedule, paired, test, adjusted, found, finished, looked)
    return Comparison(
        a=a,
        b=b,
        difference=resamples.mean(
            paired.differences, 2 * pairs, "no pair has completed", withheld_from_contrasts(schedule, results)
        ),
        pairs=pairs,
        missing_pairs=paired.missing,
        wins=int((paired.differences > 0).sum()),
        ties=int((paired.differences == 0).sum()),
        losses=int((paired.differences < 0).sum()),
        p_value=None if test is None else test.p_value,
        exact=test is not None and test.exact,
        holm=None if test is None else adjusted,
        both=0 if table is None else table.both,
        only_a=tuple(names[k] for k in paired.used[only_a]),
        only_b=tuple(names[k] for k in paired.used[only_b]),
        neither=0 if table is None else table.neither,
        mcnemar=None if test is None or table is None else table.p_value,
        e_value=None if settled is None else settled.e_value,
        e_threshold=len(schedule.declared.comparisons) / schedule.declared.alpha,
        e_problems=bets,
        verdict=verdict,
        note=note,
    )


def _verdict(
    schedule: Schedule,
    paired: Paired,
    test: SignFlip | None,
    adjusted: float,
    found: EProcess | None,
    finished: bool,
    looked: bool,
) -> tuple[Verdict, str]:
    alpha = schedule.declared.alpha
    if len(paired.used) == 0:
        return (Verdict.NOT_ENOUGH_EVIDENCE if finished else Verdict.UNFINISHED), "no pair has completed"
    if schedule.declared.stopping is StoppingRule.E_PROCESS:
        if found is not None and found.better is not None:
            better = Verdict.BETTER if found.better == "a" else Verdict.WORSE
            return better, f"e-process, after {found.stopped_at} problems"
        return Verdict.NOT_ENOUGH_EVIDENCE, "e-process" if finished else "e-process, which goes on"
    if test is None:
        return (
            Verdict.UNFINISHED,
            "p-values appear when all runs have ended: looking earlier finds differences of chance",
        )
    if looked:
        return Verdict.EXPLORATORY, "extended after runs had ended: the p-values hold no level"
    how = f"sign-flip test{', exact' if test.exact else ''}, Holm over {len(schedule.declared.comparisons)}"
    if adjusted > alpha:
        why = schedule.declared.too_few(len(paired.used))
        return Verdict.NOT_ENOUGH_EVIDENCE, f"{how}; {why}" if why else how
    return (Verdict.BETTER if test.difference > 0 else Verdict.WORSE), how
