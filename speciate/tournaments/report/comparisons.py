"""Comparisons of a tournament's entrants, paired by problem and seed, and tested only when the design allows it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speciate.domain.arrays import BoolArray, FloatArray
from speciate.domain.entrant import Entrant
from speciate.domain.tournament import Metric, Schedule, StoppingRule, Tournament
from speciate.tournaments.report.models import Amendment, Comparison, Subject, Verdict
from speciate.tournaments.report.resamples import Resamples, rng_for
from speciate.tournaments.report.results import Results
from speciate.tournaments.statistics.e_process import EProcess, e_process
from speciate.tournaments.statistics.methods import detectable_difference
from speciate.tournaments.statistics.significance import SignFlip, holm, mcnemar, sign_flips

FLIPS = 10_000
"""Sign patterns to draw if there are too many to enumerate; small levels need more."""
_MAX_FLIPS = 1_000_000


def problems_power(declared: Tournament, problems: int) -> tuple[str, ...]:
    """Return the difference that the fixed test over problems detects; nothing for too few problems."""
    if declared.stopping is StoppingRule.E_PROCESS or declared.too_few(problems):
        return ()
    least = detectable_difference(problems, problems, declared.alpha, len(declared.comparisons), paired=True)
    detect = f"{problems} problems detect, with a probability of 80 %, a difference of about {least:.2g} standard"
    return (f"{detect} deviations of the differences between two entrants",)


@dataclass(frozen=True, eq=False, slots=True)
class Paired:
    """Two entrants on the (problem, seed) pairs that both completed."""

    both: BoolArray
    """True for pairs that both completed, shape (n_problems, n_seeds)."""
    used: np.ndarray[tuple[int], np.dtype[np.int64]]
    """Indices of problems with at least one such pair, shape (n_used,)."""
    differences: FloatArray
    """Metric of A − metric of B, shape (n_used,)."""
    missing: int
    """Pairs excluded because a run failed or was cancelled."""
    reached: BoolArray
    """Problems of ``used`` that A and that B reached on any common seed, shape (2, n_used)."""


@dataclass(frozen=True, eq=False, slots=True)
class _Analysis:
    """Inputs that all comparisons of a report share."""

    schedule: Schedule
    results: Results
    resamples: Resamples
    compared: Sequence[tuple[str, str]]
    """The pairs that share the error probability."""
    extended_late: bool

    @property
    def fixed(self) -> bool:
        return self.schedule.declared.stopping is StoppingRule.FIXED


def pair_up(schedule: Schedule, results: Results, a: str, b: str) -> Paired:
    names = [entrant.name for entrant in schedule.declared.entrants]
    i, j = names.index(a), names.index(b)
    both = results.ended[..., i] & results.ended[..., j]
    used, values, successes = metric_values(schedule, results, both, [i, j])
    differences = values[:, 0] - values[:, 1]
    differences[np.abs(differences) <= 1e-12 * np.abs(values).max(axis=1)] = 0.0  # equal scores, added in another order
    return Paired(both, used, differences, results.lost([i, j]), (successes > 0).T)


def metric_values(
    schedule: Schedule, results: Results, pairs: BoolArray, entrants: Sequence[int]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], FloatArray, NDArray[np.int64]]:
    """Return the primary metric of entrants on each problem, over ``pairs`` (n_problems, n_seeds) only.

    Return the indices of problems with a pair, shape (n_used,); the metric, higher is better, shape (n_used,
    n_entrants); and successes of the same shape.
    """
    used = np.flatnonzero(pairs.any(axis=1))
    complete = pairs[used][..., None]
    successes = (results.reached[used][..., entrants] & complete).sum(axis=1)
    metric = schedule.declared.metric
    if metric is Metric.SOLVE_RATE:
        return used, successes / complete.sum(axis=1), successes
    if metric.of_scores:
        scores = results.score if metric is Metric.BEST_SCORE else results.best_by.mean(axis=-1)
        return used, (scores[used][..., entrants] * complete).sum(axis=1) / complete.sum(axis=1), successes
    spent = (results.evaluations[used][..., entrants] * complete).sum(axis=1)
    whole = complete.sum(axis=1) * (schedule.declared.budget.evaluations or 0.0)
    spent = np.where(successes > 0, spent, np.maximum(spent, whole))  # who gives up early saves nothing
    return used, -np.log(np.maximum(spent, 1.0) / np.maximum(successes, 0.5)), successes


def evidence(schedule: Schedule, results: Results, paired: Paired, comparisons: int) -> EProcess | None:
    """Return the e-process over the leading problems that all entrants completed; None without a pair there."""
    leading = paired.used < results.complete_problems
    if not leading.any():
        return None
    return e_process(paired.differences[leading], schedule.declared.alpha / comparisons)


def decided_after(schedule: Schedule, results: Results) -> int | None:
    """Return the number of problems after which the e-process had decided every comparison, or None."""
    if schedule.declared.stopping is not StoppingRule.E_PROCESS:
        return None
    last = 0
    for a, b in schedule.declared.comparisons:
        paired = pair_up(schedule, results, a, b)
        process = evidence(schedule, results, paired, len(schedule.declared.comparisons))
        if process is None or process.stopped_at is None:
            return None
        last = max(last, int(paired.used[process.stopped_at - 1]) + 1)
    return last


def contrasts_withheld(schedule: Schedule, results: Results) -> str:
    """Return the reason to withhold intervals of differences between entrants; empty if they may be shown."""
    if schedule.declared.stopping is StoppingRule.E_PROCESS:
        return "interval withheld: not valid under early stopping"
    # Like repeated tests, an interval that is inspected repeatedly has less than its nominal coverage.
    return "" if results.finished else "interval withheld until all runs have ended"


def compare(
    schedule: Schedule,
    amendments: Sequence[Amendment],
    results: Results,
    resamples: Resamples,
    compared: Sequence[tuple[str, str]],
) -> tuple[Comparison, ...]:
    extended_late = any(amendment.ended_runs > 0 for amendment in amendments)
    analysis = _Analysis(schedule, results, resamples, compared, extended_late)
    pairs = [pair_up(schedule, results, a, b) for a, b in compared]
    tests = _tests(analysis, pairs)
    # A comparison without pairs cannot be tested: it counts as not rejected.
    adjusted = holm([1.0 if test is None else test.p_value for test in tests])
    return tuple(
        _comparison(analysis, i, paired, test, float(p))
        for i, (paired, test, p) in enumerate(zip(pairs, tests, adjusted, strict=True))
    )


def _tests(analysis: _Analysis, pairs: Sequence[Paired]) -> list[SignFlip | None]:
    """Return the sign-flip test of each comparison; None without pairs, and for all before every run has ended."""
    tests: list[SignFlip | None] = [None] * len(pairs)
    tested = [i for i, pair in enumerate(pairs) if len(pair.used)]
    if not tested or not (analysis.fixed and analysis.results.finished):
        return tests
    # With n patterns no p-value is below 1 / (n + 1), which Holm multiplies by the number of comparisons.
    draws = max(FLIPS, math.ceil(min(2 * len(pairs) / analysis.schedule.declared.alpha, _MAX_FLIPS)))
    flips = sign_flips([pairs[i].differences for i in tested], rng_for(analysis.schedule, 0), draws)
    for i, flip in zip(tested, flips, strict=True):
        tests[i] = flip
    return tests


def _comparison(analysis: _Analysis, i: int, paired: Paired, test: SignFlip | None, adjusted: float) -> Comparison:
    schedule, results, names = analysis.schedule, analysis.results, analysis.schedule.problems
    a, b = analysis.compared[i]
    # More seeds for problems already inspected would change bets that were made.
    late = analysis.extended_late and analysis.fixed
    process = None if late else evidence(schedule, results, paired, len(analysis.compared))
    if not analysis.fixed and process is not None and (n := process.stopped_at):  # other comparisons took longer
        both, used = paired.both[: paired.used[n - 1] + 1], paired.used[:n]
        paired = Paired(both, used, paired.differences[:n], paired.missing, paired.reached[:, :n])
    pairs = int(paired.both.sum())
    bets, e_value = _wealth(process, fixed=analysis.fixed)
    table = mcnemar(*paired.reached)
    only_a, only_b = paired.reached[0] & ~paired.reached[1], paired.reached[1] & ~paired.reached[0]
    verdict, note = _verdict(analysis, paired, test, adjusted, process)
    withheld = contrasts_withheld(schedule, results)
    return Comparison(
        a=a,
        b=b,
        subject=_subject(schedule.declared.entrant(a), schedule.declared.entrant(b)),
        difference=analysis.resamples.mean(paired.differences, 2 * pairs, "no pair has completed", withheld),
        spread=float(paired.differences.std(ddof=1)) if len(paired.used) > 1 else None,
        pairs=pairs,
        missing_pairs=paired.missing,
        wins=int((paired.differences > 0).sum()),
        ties=int((paired.differences == 0).sum()),
        losses=int((paired.differences < 0).sum()),
        p_value=None if test is None else test.p_value,
        exact=test is not None and test.exact,
        holm=None if test is None else adjusted,
        both=table.both,
        only_a=tuple(names[k] for k in paired.used[only_a]),
        only_b=tuple(names[k] for k in paired.used[only_b]),
        neither=table.neither,
        mcnemar=None if test is None else table.p_value,
        e_value=e_value,
        e_threshold=len(analysis.compared) / schedule.declared.alpha,
        e_problems=bets,
        verdict=verdict,
        note=note,
    )


def _subject(a: Entrant, b: Entrant) -> Subject:
    if a.role_labels()[0] == b.role_labels()[0]:
        return Subject.SEARCH
    alike = (a.search, a.batch, a.samples_per_prompt) == (b.search, b.batch, b.samples_per_prompt)
    return Subject.CHECKPOINT if alike else Subject.ENTRANT


def _wealth(process: EProcess | None, *, fixed: bool) -> tuple[int, float | None]:
    """Return the number of bets and the e-value: at the stop if the tournament stops early, else over all problems."""
    if process is None:
        return 0, None
    bets = (None if fixed else process.stopped_at) or len(process.log_a)
    return bets, EProcess(process.log_a[:bets], process.log_b[:bets], process.threshold, None).e_value


def _verdict(
    analysis: _Analysis, paired: Paired, test: SignFlip | None, adjusted: float, process: EProcess | None
) -> tuple[Verdict, str]:
    if len(paired.used) == 0:
        verdict = Verdict.NOT_ENOUGH_EVIDENCE if analysis.results.finished else Verdict.UNFINISHED
        return verdict, "no pair has completed"
    if not analysis.fixed:
        return _e_process_verdict(process, finished=analysis.results.finished)
    if test is None:
        return Verdict.UNFINISHED, "p-values appear when all runs have ended: earlier looks inflate false positives"
    if analysis.extended_late:
        return Verdict.EXPLORATORY, "extended after runs had ended: the p-values are not valid"
    declared = analysis.schedule.declared
    how = f"sign-flip test over problems{', exact' if test.exact else ''}, Holm over {len(analysis.compared)}"
    if adjusted > declared.alpha:
        why = declared.too_few(len(paired.used))
        return Verdict.NOT_ENOUGH_EVIDENCE, f"{how}; {why}" if why else how
    return (Verdict.BETTER if test.difference > 0 else Verdict.WORSE), how


def _e_process_verdict(process: EProcess | None, *, finished: bool) -> tuple[Verdict, str]:
    if process is not None and process.better is not None:
        better = Verdict.BETTER if process.better == "a" else Verdict.WORSE
        return better, f"e-process, after {process.stopped_at} problems"
    return Verdict.NOT_ENOUGH_EVIDENCE, "e-process" if finished else "e-process, continuing"
