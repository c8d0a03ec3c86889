"""Tables beyond the standings: curves over k, profiles, laws, hypervolume, diversity and health of the policies."""

from collections.abc import Sequence

from speciate.tournaments.rendering.cells import Section, ends, estimate, withheld
from speciate.tournaments.report.measures import BudgetLaw
from speciate.tournaments.report.models import Report


def draws(report: Report) -> Section:
    rows = tuple(
        (each.entrant, str(k), estimate(each.pass_at[i]), estimate(each.best_at[i]))
        for each in report.draws
        for i, k in enumerate(each.k)
    )
    note = (
        "A sample is a run, on problems whose runs all completed. pass@k: probability that one of k runs reaches the"
        " target; best@k: expected best score of k runs. Unbiased for every k up to the number of seeds. Intervals as"
        " in the standings; not tested."
    ) + withheld(each for draw in report.draws for each in (*draw.pass_at, *draw.best_at))
    return Section("draws", "pass@k and best@k", note if rows else "", ("entrant", ">k", ">pass@k", ">best@k"), rows)


def noisy(report: Report) -> Section:
    scores = {(s.problem, s.entrant): f"{s.score:.3g} ± {s.margin:.2g} n={s.runs}" for s in report.noisy}
    entrants = report.matrix.entrants
    rows = tuple(
        (problem, *(scores.get((problem, entrant), "–") for entrant in entrants))
        for problem in dict.fromkeys(each.problem for each in report.noisy)
    )
    note = (
        "Mean over runs (n) of the best program's score in evaluations after the end, which decide between two programs"
        " at most; ±: 95 % interval by the noise of these evaluations, not by the differences between runs."
    )
    columns = ("problem", *(f">{name}" for name in entrants))
    return Section("noisy", "Best scores on noisy problems", note if rows else "", columns, rows)


def laws(report: Report) -> tuple[Section, Section]:
    return (
        _laws(report.budget_laws, "laws", "solve rate", "Solve rate"),
        _laws(report.score_laws, "score-laws", "best score", "Mean over runs of the best score so far"),
    )


def _laws(predictions: Sequence[BudgetLaw], key: str, measure: str, what: str) -> Section:
    rows = tuple(
        (
            law.entrant,
            f"{point.evaluations:,.0f}",
            f"{point.value:.3g}{ends(point.low, point.high, '.3g')} n={law.problems}",
            f"{law.worst_residual:.2g}",
        )
        for law in predictions
        if law.worst_residual is not None
        for point in law.predicted
    )
    note = (
        f"{what} against the budget, fitted by b(k) = start + gain · (1 − (k/k₀)^−β) / β; bootstrap intervals over"
        " problems. Beyond the budget the law is an assumption, which no interval covers."
    ) + withheld(predictions)
    if not rows:
        note = f"{predictions[0].note.capitalize()}." if predictions else ""
    columns = ("entrant", ">evaluations", f">{measure} by the law", ">worst residual")
    return Section(key, f"Budget curve: {measure}", note, columns, rows)


def qualities(report: Report) -> Section:
    rows = tuple(
        (each.entrant, estimate(each.hypervolume), estimate(each.diversity), estimate(each.diversity_all))
        for each in report.qualities
    )
    note = (
        "Means over problems of means over runs; not tested. Hypervolume: share of the box between a tenth of every"
        " range below its worst end and its best end that the final front dominates (sampled beyond two objectives)."
        " Diversity: mean L1 distance between two candidates of a run, normalised rewards; with failed candidates at 0,"
        " frequent failure can look like diversity. Infeasible candidates count as failed."
    ) + withheld(report.qualities)
    columns = ("entrant", ">hypervolume", ">diversity of scored", ">diversity of all")
    return Section("quality", "Hypervolume and diversity", note if rows else "", columns, rows)


def health(report: Report) -> Section:
    rows = tuple(
        (
            h.entrant, h.policy, f"{h.rollouts:,}", estimate(h.entropy), estimate(h.unreadable), estimate(h.failed),
            estimate(h.duplicates), estimate(h.reward), estimate(h.within), estimate(h.across),
        )
        for h in report.health
    )  # fmt: skip
    note = (
        "Means over problems of means over runs; not tested. Entropy: nats per token, mean of −log p of the sampled"
        " tokens. Unreadable: completions without a readable answer. Failed (not scored, or infeasible) and"
        " duplicates: shares of the answers. Reward: mean score of an answer, failed ones 0. Within and across: mean"
        " L1 distance between the rewards of two feasible answers, of one completion and of two completions of a run."
    ) + withheld(report.health)
    columns = (
        "entrant", "policy", ">completions", ">entropy", ">unreadable", ">failed", ">duplicates", ">reward", ">within",
        ">across",
    )  # fmt: skip
    return Section("health", "Health of the policies", note if rows else "", columns, rows)
