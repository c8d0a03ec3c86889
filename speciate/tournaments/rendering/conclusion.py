"""The result of a tournament in a sentence or two, for the page, the terminal and the HTML file."""

from math import ceil, exp
from statistics import NormalDist, mean
from typing import Final

from speciate.domain.tournament import Metric
from speciate.tournaments.rendering.cells import shown
from speciate.tournaments.report.models import Comparison, MethodComparison, Report, Subject, Verdict
from speciate.tournaments.statistics.methods import runs_needed, runs_text, too_few_runs

_MOST: Final = 4
"""Decisions, open comparisons or entrants that a sentence names."""
_DECIDED: Final = frozenset({Verdict.BETTER, Verdict.WORSE})
_SCOPE: Final = " This compares these checkpoints, not their training methods."


def conclusion(report: Report) -> str:
    """Return which entrants unlock more problems, how sure that is and on how many problems, or why it is undecided.

    Methods come first, in sentences of their own: a comparison of checkpoints says nothing about their methods.
    """
    ended = [each for each in report.standings.methods if each.verdict is not Verdict.UNFINISHED]
    nulls = [_null(each) for each in report.standings.nulls if each.verdict is not Verdict.UNFINISHED]
    methods = (_method(each, report) for each in ended[:_MOST])
    return " ".join([*methods, _checkpoints(report), *nulls[:_MOST], *report.warnings])


def null_verdict(null: Comparison) -> str:
    tested = {Verdict.BETTER: "rejected", Verdict.WORSE: "rejected", Verdict.NOT_ENOUGH_EVIDENCE: "not rejected"}
    return tested.get(null.verdict, null.verdict.value)


def _null(null: Comparison) -> str:
    evidence = "" if null.holm is None and null.e_value is None else f" ({_evidence(null)})"
    return f"Null {null.a}, a duplicate of {null.b}: {null_verdict(null)}{evidence}."


def deciding(report: Report) -> str:
    """Return what would decide the open comparisons of checkpoints; empty without one, or if no number tells.

    So many decide with a power of 80 %, at the level that Holm leaves to the first of them, if the difference and its
    spread stay what they are.
    """
    undecided = [each for each in report.standings.comparisons if each.verdict is Verdict.NOT_ENOUGH_EVIDENCE]
    alpha, normal, needed = report.design.declared.alpha, NormalDist(), []
    for each in undecided:
        if each.p_value in (None, 1) or not each.spread or not each.difference.value:
            continue
        errors = normal.inv_cdf(1 - alpha / (2 * len(undecided))) + normal.inv_cdf(0.8)
        least = runs_needed(alpha, len(undecided), paired=True)
        more = max(_problems(each) + 1, least, ceil((errors * each.spread / each.difference.value) ** 2))
        needed.append(f"about {more:,} problems for {each.a} against {each.b}")
    return f"It would take {_listed(needed)}, if the differences stay what they are." if needed else ""


def _checkpoints(report: Report) -> str:
    comparisons = report.standings.comparisons
    decided = [each for each in comparisons if each.verdict in _DECIDED]
    if not decided:
        return f"{'Checkpoints: u' if report.standings.methods else 'U'}ndecided: {_undecided(report)}."
    parts = [_decided(each, report) for each in decided[:_MOST]]
    if (more := len(decided) - _MOST) > 0:
        parts.append(f"{more} more comparisons are decided")
    if left := [f"{each.a} against {each.b}" for each in comparisons if each not in decided]:
        parts.append(f"undecided: {_listed(left)}")
    sentence = "; ".join(parts)
    alone = not report.standings.methods and any(each.subject is Subject.CHECKPOINT for each in decided)
    return sentence[:1].upper() + sentence[1:] + "." + (_SCOPE if alone else "")


def _method(comparison: MethodComparison, report: Report) -> str:
    several = len({each.search for each in report.standings.methods}) > 1
    search = f" with {comparison.search}" if several else ""
    if comparison.verdict not in _DECIDED:
        return f"Methods {comparison.a} and {comparison.b}{search}: undecided, {_undecided_method(comparison, report)}."
    ahead = comparison.verdict is Verdict.BETTER
    better, worse = (comparison.a, comparison.b) if ahead else (comparison.b, comparison.a)
    runs = comparison.runs_a, comparison.runs_b
    means = [mean(run.value for run in each if run.value is not None) for each in (runs if ahead else runs[::-1])]
    declared = report.design.declared
    reaches = "unlocks" if declared.target is None else f"reaches {declared.target} on"
    if declared.metric is Metric.LOG_ERT:
        words = f"{reaches} problems with fewer evaluations than method {worse}"
    elif declared.metric.of_scores:
        words = f"finds better programs than method {worse}: {declared.metric} {means[0]:.3g} against {means[1]:.3g}"
    else:
        rates = " against ".join(f"{rate:.0%}" for rate in means)
        words = f"{reaches} problems in more runs than method {worse}: {rates}"
    return f"Method {better} {words}, over {compared_runs(comparison)}{search} (p = {comparison.holm:.2g})."


def compared_runs(comparison: MethodComparison) -> str:
    return runs_text(*_runs(comparison), paired=comparison.paired)


def _runs(comparison: MethodComparison) -> tuple[int, int]:
    a, b = (sum(run.value is not None for run in runs) for runs in (comparison.runs_a, comparison.runs_b))
    return a, b


def _undecided_method(comparison: MethodComparison, report: Report) -> str:
    if comparison.holm is None or comparison.verdict is Verdict.EXPLORATORY:
        return comparison.note
    alpha, count = report.design.declared.alpha, len(report.standings.methods)
    few = too_few_runs(*_runs(comparison), alpha, count, paired=comparison.paired)
    return few or f"the difference over {compared_runs(comparison)} may be due to chance (p = {comparison.holm:.2g})"


def _decided(comparison: Comparison, report: Report) -> str:
    declared = report.design.declared
    pair = comparison.a, comparison.b
    better, worse = pair if comparison.verdict is Verdict.BETTER else reversed(pair)
    reaches = "unlocks" if declared.target is None else f"reaches {declared.target} on"
    n, other = f"{_problems(comparison)} problems", f"{comparison.subject} {worse}"
    if declared.metric is Metric.LOG_ERT:
        # The number that is tested: the hardest problems dominate the pooled ERT, which may order entrants otherwise.
        difference = comparison.difference.value or 0.0
        factor = exp(difference if comparison.verdict is Verdict.BETTER else -difference)
        times = f"{format(factor, '.3g' if factor < 999.5 else ',.0f')} times " if factor > 1 else ""
        words = f"{reaches} problems with {times}fewer evaluations than {other}, as the geometric mean over {n}"
    elif declared.metric.of_scores:
        lead = abs(comparison.difference.value or 0.0)
        won = "{} : {}".format(*(comparison.wins, comparison.losses)[:: 1 if better == comparison.a else -1])
        words = f"finds better programs than {other}: {declared.metric} {lead:.3g} higher, {won} of {n}"
    else:
        points = 100 * abs(comparison.difference.value or 0.0)
        words = f"{reaches} problems in more runs than {other}: {points:.0f} percentage points more, over {n}"
    return f"{comparison.subject} {better} {words} ({_evidence(comparison)})"


def _evidence(comparison: Comparison) -> str:
    if comparison.holm is None:
        return f"e-value {comparison.e_value:.3g}, decided at {comparison.e_threshold:.3g}"
    return f"p = {comparison.holm:.2g}"


def _undecided(report: Report) -> str:
    design, comparisons = report.design, report.standings.comparisons
    problems = max(_problems(each) for each in comparisons)
    if design.pending:
        reason = f"{design.planned - design.pending:,} of {design.planned:,} runs have ended"
    elif any(each.verdict is Verdict.EXPLORATORY for each in comparisons):
        reason = "the tournament was extended after runs had ended, so its p-values are not valid"
    elif not (reason := design.declared.too_few(problems)):
        p_values = [each.holm for each in comparisons if each.holm is not None]
        reason = "the differences may be due to chance" + (f" (p = {min(p_values):.2g})" if p_values else "")
    return "; ".join(filter(None, [reason, _measured(report) if problems else "no pair of runs has completed"]))


def _measured(report: Report) -> str:
    """Return the mean score or the unlocked problems of each entrant, and of how many problems; empty without any."""
    declared, standings = report.design.declared, report.standings.standings
    metric = declared.metric
    measured = [(each.measure(metric).value if metric.of_scores else each.unlocked, each) for each in standings]
    ranked = sorted(((value, each) for value, each in measured if value is not None), key=lambda ranked: -ranked[0])
    # While runs go on, entrants have ended on different numbers of problems.
    counts = [each.measure(metric).problems for _, each in ranked]
    alike = len({*counts}) == 1
    own = "" if alike else " (n={})" if metric.of_scores else " of {}"
    listed = _listed(
        [f"{s.entrant} {shown(value, '.3g')}{own.format(n)}" for (value, s), n in zip(ranked, counts, strict=True)]
    )
    if metric.of_scores:
        what = f"mean {'area' if metric is Metric.AREA else 'best score'}" + (
            f" on {counts[0]} problem{'s' * (counts[0] != 1)}" if alike else ""
        )
    else:
        what = f"problems {'unlocked' if declared.target is None else f'with {declared.target} reached'}"
        what += f", of {counts[0]}" if alike else ""
    return f"{what}: {listed}" if ranked else ""


def _problems(comparison: Comparison) -> int:
    return comparison.wins + comparison.ties + comparison.losses


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
