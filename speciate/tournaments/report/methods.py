"""Comparisons of training methods: every training run is one number, and the training runs are permuted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.tournament import MethodGroup, Schedule, Tournament
from speciate.tournaments.report.comparisons import metric_values
from speciate.tournaments.report.models import Amendment, MethodComparison, TrainingRun, Verdict
from speciate.tournaments.report.resamples import LEVEL, rng_for
from speciate.tournaments.report.results import Results
from speciate.tournaments.statistics.methods import (
    MethodTest,
    compare_methods,
    detectable_difference,
    runs_text,
    smallest_p,
    too_few_runs,
)
from speciate.tournaments.statistics.significance import holm

_PURPOSE: Final = 30_000
"""First number of the random generators of the tests."""


def methods_power(declared: Tournament) -> tuple[str, ...]:
    """Return the difference that the training runs of each declared comparison can detect, or that they cannot."""
    sentences = []
    for a, b in declared.method_comparisons:
        design = (len(a.runs), len(b.runs), declared.alpha, len(declared.method_comparisons))
        paired = a.paired_with(b)
        sentence = too_few_runs(*design, paired=paired)
        if not sentence:
            least = detectable_difference(*design, paired=paired)
            unit = "the difference between paired runs" if paired else "runs of one method"
            detect = f"{runs_text(*design[:2], paired=paired)} detect, with a probability of 80 %, a difference"
            sentence = f"{detect} between methods of about {least:.2g} standard deviations of {unit}"
        sentences.append(sentence)
    return tuple(dict.fromkeys(sentences))


def methods_doubt(declared: Tournament) -> str:
    """Return why no comparison of methods can be decided, whatever the results; empty if one can."""
    pairs = declared.method_comparisons
    sizes = [(len(a.runs), len(b.runs), a.paired_with(b)) for a, b in pairs]
    reasons = [too_few_runs(a, b, declared.alpha, len(pairs), paired=paired) for a, b, paired in sizes]
    return reasons[0] if reasons and all(reasons) else ""


def compare_groups(
    schedule: Schedule, amendments: Sequence[Amendment], results: Results
) -> tuple[MethodComparison, ...]:
    declared = schedule.declared
    extended_late = any(amendment.ended_runs > 0 for amendment in amendments)
    measured = [_measure(schedule, results, a, b, extended_late) for a, b in declared.method_comparisons]
    tests = [
        compare_methods(*each.values, rng_for(schedule, _PURPOSE + i), paired=each.paired, level=LEVEL)
        if each.complete
        else None
        for i, each in enumerate(measured)
    ]
    if not tests:
        return ()
    adjusted = holm([1.0 if test is None else test.p_value for test in tests]).tolist()
    return tuple(_comparison(declared, each, test, p) for each, test, p in zip(measured, tests, adjusted, strict=True))


@dataclass(frozen=True, eq=False, slots=True)
class _Measured:
    """Two groups with the metric of their training runs on the problems that all of them completed."""

    groups: tuple[MethodGroup, MethodGroup]
    """A and B, without training runs that have no completed search run."""
    declared: tuple[MethodGroup, MethodGroup]
    values: tuple[FloatArray, FloatArray]
    """Of A and of B, shape (n_runs, n_problems)."""
    missing: int
    """(problem, seed) pairs excluded because a run failed or was cancelled."""
    finished: bool
    extended_late: bool

    @property
    def paired(self) -> bool:
        return self.declared[0].paired_with(self.declared[1])

    @property
    def complete(self) -> bool:
        return all(values.size for values in self.values)


def _measure(schedule: Schedule, results: Results, a: MethodGroup, b: MethodGroup, extended_late: bool) -> _Measured:
    index = {entrant.name: i for i, entrant in enumerate(schedule.declared.entrants)}
    seen = {name: bool(results.ended[..., i].any()) for name, i in index.items()}
    complete_runs = [tuple(run for run in group.runs if seen[run.name]) for group in (a, b)]
    if a.paired_with(b):
        seeds = {run.training_seed for run in complete_runs[0]} & {run.training_seed for run in complete_runs[1]}
        complete_runs = [tuple(run for run in runs if run.training_seed in seeds) for runs in complete_runs]
    columns = [index[run.name] for runs in complete_runs for run in runs]
    pairs = np.asarray(results.ended[..., columns].all(axis=-1))
    _, values, _ = metric_values(schedule, results, pairs, columns)
    return _Measured(
        (a._replace(runs=complete_runs[0]), b._replace(runs=complete_runs[1])),
        (a, b),
        (values.T[: len(complete_runs[0])], values.T[len(complete_runs[0]) :]),
        results.lost([index[run.name] for group in (a, b) for run in group.runs]),
        results.finished,
        extended_late,
    )


def _comparison(
    declared: Tournament, measured: _Measured, test: MethodTest | None, adjusted: float
) -> MethodComparison:
    a, b = measured.groups
    complete_runs = [run.name for group in measured.groups for run in group.runs]
    rates = {} if test is None else dict(zip(complete_runs, (*test.rates_a, *test.rates_b), strict=True))
    runs = [
        tuple(
            TrainingRun(entrant=run.name, training_seed=seed, value=rates.get(run.name))
            for run, seed in zip(whole.runs, whole.seeds, strict=True)
        )
        for whole in measured.declared
    ]
    verdict, note = _verdict(declared, measured, test, adjusted)
    counts = (len(a.runs) or 1, len(b.runs) or 1)
    known = () if test is None else ("difference", "wins", "ties", "losses", "smallest_p")
    # Like p-values, an interval that is inspected repeatedly loses its level.
    final = ("low", "high", "p_value", "exact") if test is not None and measured.finished else ()
    return MethodComparison.model_validate(
        {
            "a": a.method,
            "b": b.method,
            "search": str(a.search),
            "runs_a": runs[0],
            "runs_b": runs[1],
            "paired": measured.paired,
            "problems": measured.values[0].shape[1] if measured.complete else 0,
            "missing_pairs": measured.missing,
            "level": LEVEL,
            "holm": adjusted if final else None,
            "smallest_p": smallest_p(*counts, paired=measured.paired),
            "verdict": verdict,
            "note": note,
            **{name: getattr(test, name) for name in (*known, *final)},
        }
    )


def _verdict(
    declared: Tournament, measured: _Measured, test: MethodTest | None, adjusted: float
) -> tuple[Verdict, str]:
    if test is None:
        verdict = Verdict.NOT_ENOUGH_EVIDENCE if measured.finished else Verdict.UNFINISHED
        return verdict, "no problem has a completed run of every training run"
    if not measured.finished:
        return Verdict.UNFINISHED, "p-values appear when all runs have ended: earlier looks inflate false positives"
    if measured.extended_late:
        return Verdict.EXPLORATORY, "extended after runs had ended: the p-values are not valid"
    if measured.groups != measured.declared:
        return Verdict.EXPLORATORY, "training runs without a completed search are left out: the p-values are not valid"
    count = len(declared.method_comparisons)
    what = "sign-flip test over paired training seeds" if test.paired else "permutation test over training runs"
    how = f"{what}{', exact' if test.exact else ''}, Holm over {count}"
    if adjusted > declared.alpha:
        a, b = measured.groups
        why = too_few_runs(len(a.runs), len(b.runs), declared.alpha, count, paired=test.paired)
        return Verdict.NOT_ENOUGH_EVIDENCE, f"{how}; {why}" if why else how
    return (Verdict.BETTER if test.difference > 0 else Verdict.WORSE), how
