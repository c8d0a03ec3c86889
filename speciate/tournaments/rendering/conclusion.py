"""The result of a tournament in one sentence, for the page, the terminal and the HTML file."""

from __future__ import annotations

from math import inf
from typing import Final

from speciate.domain.tournament import Metric
from speciate.tournaments.report.models import Comparison, Report, Verdict

_MOST: Final = 4
"""Decisions, open comparisons or entrants that the sentence names."""


def conclusion(report: Report) -> str:
    """Return which entrants unlock more problems, how sure that is and on how many problems, or why it is undecided."""
    found = report.standings.comparisons
    decided = [each for each in found if each.verdict in {Verdict.BETTER, Verdict.WORSE}]
    if not decided:
        return f"Undecided: {_undecided(report)}."
    parts = [_decided(each, report) for each in decided[:_MOST]]
    if (more := len(decided) - _MOST) > 0:
        parts.append(f"{more} more comparisons are decided")
    if left := [f"{each.a} against {each.b}" for each in found if each not in decided]:
        parts.append(f"undecided: {_listed(left)}")
    return "; ".join(parts) + "."


def _decided(found: Comparison, report: Report) -> str:
    declared, standing = report.design.declared, {each.entrant: each for each in report.standings.standings}
    pairs = [(found.a, len(found.only_a)), (found.b, len(found.only_b))]
    (better, gained), (worse, lost) = pairs if found.verdict is Verdict.BETTER else reversed(pairs)
    reaches = "unlocks" if declared.target is None else f"reaches {declared.target} on"
    n = f"{_problems(found)} problems"
    if declared.metric is Metric.LOG_ERT:
        costs = [f"{standing[name].ert.value or inf:,.0f}" for name in (better, worse)]
        words = f"{reaches} problems with fewer evaluations than {worse}: {' against '.join(costs)} on {n}"
    elif gained > lost:
        words = f"{reaches} more problems than {worse}: {found.both + gained} against {found.both + lost} of {n}"
    else:
        rates = [f"{standing[name].pass_1.value or 0:.0%}" for name in (better, worse)]
        words = f"{reaches} problems in more runs than {worse}: {' against '.join(rates)} on {n}"
    return f"{better} {words} ({_evidence(found)})"


def _evidence(found: Comparison) -> str:
    if found.holm is None:
        return f"e-value {found.e_value:.3g}, decided at {found.e_threshold:.3g}"
    return f"p = {found.holm:.2g}"


def _undecided(report: Report) -> str:
    design, found = report.design, report.standings.comparisons
    problems = max(_problems(each) for each in found)
    ranked = sorted(report.standings.standings, key=lambda each: -each.unlocked)
    what = "unlocked" if design.declared.target is None else f"with {design.declared.target} reached"
    counts = _listed([f"{each.entrant} {each.unlocked}" for each in ranked])
    counts = f"problems {what}, of {problems}: {counts}" if problems else "no pair of runs has completed"
    if design.pending:
        reason = f"{design.ended:,} of {design.planned:,} runs have ended"
    elif any(each.verdict is Verdict.EXPLORATORY for each in found):
        reason = "the tournament was extended after runs had ended, so its p-values are not valid"
    elif not (reason := design.declared.too_few(problems)):
        known = [each.holm for each in found if each.holm is not None]
        reason = "the differences may be due to chance" + (f" (p = {min(known):.2g})" if known else "")
    return f"{reason}; {counts}"


def _problems(found: Comparison) -> int:
    return found.wins + found.ties + found.losses


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
