"""A report as one HTML file: no scripts, no network, all text escaped, figures as inline SVG."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.svg import Figure, Line, Points, figures, tick
from speciate.tournaments.rendering.tables import sections, verdict
from speciate.tournaments.report.measures import BudgetLaw, Estimate, Reached
from speciate.tournaments.report.models import Report

_INTERVAL: Final = re.compile(r"\[[-+.,∞ \de]+\]")


def page(report: Report) -> str:
    environment = Environment(
        loader=PackageLoader("speciate.tournaments", "rendering"),
        autoescape=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters.update(tick=tick, whole=_with_whole_intervals)
    return environment.get_template("report.html").render(
        title=report.design.declared.title or report.design.declared.slug,
        conclusion=conclusion(report),
        verdicts=[*map(verdict, report.standings.methods), *map(verdict, report.standings.comparisons)],
        sections=[(each, _FIGURES[each.key](report) if each.key in _FIGURES else ()) for each in sections(report)],
    )


def _with_whole_intervals(text: str) -> Markup:
    return Markup(_INTERVAL.sub(r'<span class="whole">\g<0></span>', str(escape(text))))  # noqa: S704 - escaped


def _draws(report: Report) -> list[Figure]:
    passed = [Line(d.entrant, _known(d.k, d.pass_at)) for d in report.draws]
    best = [Line(d.entrant, _known(d.k, d.best_at)) for d in report.draws]
    return figures(passed, "k runs", "pass@k") + figures(best, "k runs", "best@k")


def _reached(report: Report) -> list[Figure]:
    units = dict.fromkeys(curve.unit for curve in report.reached)
    curves = {unit: [each for each in report.reached if each.unit == unit] for unit in units}
    return [each for unit in units for each in figures(_curves(curves[unit]), unit, "share reached")]


def _laws(laws: Sequence[BudgetLaw], up: str) -> list[Figure]:
    return figures([_law(law) for law in laws], "evaluations", up, logarithmic=True)


_FIGURES: Final[dict[str, Callable[[Report], Sequence[Figure]]]] = {
    "draws": _draws,
    "reached": _reached,
    "laws": lambda report: _laws(report.budget_laws, "solve rate"),
    "score-laws": lambda report: _laws(report.score_laws, "best score"),
}
"""Figures of a section, by its key."""


def _known(ks: Sequence[int], estimates: Sequence[Estimate]) -> Points:
    return [(float(k), each.value) for k, each in zip(ks, estimates, strict=True) if each.value is not None]


def _curves(curves: Sequence[Reached]) -> list[Line]:
    """Extend all curves to the same end; beyond ``sound_until`` a curve is a lower bound, drawn dotted."""
    end = max(x for curve in curves for x in (*curve.spent, curve.sound_until or 0.0))
    return [_curve(curve, end) for curve in curves]


def _curve(curve: Reached, end: float) -> Line:
    points = [(0.0, 0.0)]
    for spent, share in zip(curve.spent, curve.share, strict=True):
        points += [(spent, points[-1][1]), (spent, share)]
    points.append((end, points[-1][1]))
    sound = end if curve.sound_until is None else curve.sound_until
    exact = [point for point in points if point[0] <= sound]
    exact.append((sound, exact[-1][1]))
    bound = [point for point in points if point[0] > sound]
    return Line(curve.entrant, exact, [exact[-1], *bound] if bound else ())


def _law(law: BudgetLaw) -> Line:
    measured = list(zip(law.budgets, law.measured, strict=False))
    beyond = [(point.evaluations, point.value) for point in law.predicted]
    bars = [(p.evaluations, p.low, p.high) for p in law.predicted if p.low is not None and p.high is not None]
    return Line(law.entrant, measured, beyond, bars)
