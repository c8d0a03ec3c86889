"""Verdicts and tables of training methods."""

from collections.abc import Sequence

from speciate.tournaments.rendering.cells import Section, ends, p_value, shown
from speciate.tournaments.rendering.conclusion import compared_runs
from speciate.tournaments.report.models import MethodComparison, Report


def methods(report: Report) -> Section:
    comparisons = report.standings.methods
    rows = tuple(
        (
            f"{c.a} − {c.b}", c.search, compared_runs(c), str(c.problems), _difference(c),
            f"{c.wins} / {c.ties} / {c.losses}", p_value(c.p_value, exact=c.exact), p_value(c.holm),
            p_value(c.smallest_p), c.verdict.value,
        )
        for c in comparisons
    )  # fmt: skip
    note = (
        f"The training run is the unit: each is one number, its mean {report.standings.metric} over the problems. Δ:"
        " mean difference with a 95 % t interval over training runs; p: permutation test over training runs,"
        " two-sided, Holm over all comparisons of methods; smallest p: the least that so many training runs can"
        f" reach. Win/tie/loss counts paired training seeds, otherwise pairs of runs.{_withheld(comparisons)}"
    )
    columns = (
        "methods", "search", "training runs", ">problems", ">Δ", ">win/tie/loss", ">p", ">Holm p", ">smallest p",
        "verdict",
    )  # fmt: skip
    return Section("methods", "Methods", note if rows else "", columns, rows)


def _difference(comparison: MethodComparison) -> str:
    if comparison.difference is None:
        return "–"
    return f"{shown(comparison.difference, '+.3g')}{ends(comparison.low, comparison.high, '+.3g')}"


def _withheld(comparisons: Sequence[MethodComparison]) -> str:
    if any(c.difference is not None and c.p_value is None for c in comparisons):
        return " Interval withheld until all runs have ended."
    if any(c.difference is not None and c.low is None for c in comparisons):
        return " Interval withheld: a single training run, or equal ones."
    return ""


def training_runs(report: Report) -> Section:
    rows = tuple(
        dict.fromkeys(
            (method, c.search, str(run.training_seed), run.entrant, "–" if run.value is None else f"{run.value:.3g}")
            for c in report.standings.methods
            for method, runs in ((c.b, c.runs_b), (c.a, c.runs_a))
            for run in runs
        )
    )
    note = f"Mean {report.standings.metric} of each training run, on problems that every compared run completed."
    columns = ("method", "search", ">training seed", "entrant", ">mean")
    return Section("training-runs", "Training runs", note if rows else "", columns, rows)
