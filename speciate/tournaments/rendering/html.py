"""A report as one HTML file: no scripts, no network, all text escaped, figures as inline SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from math import exp
from typing import Final

from speciate.tournaments.rendering.cells import Section
from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.method_tables import method_verdict
from speciate.tournaments.rendering.svg import Line, Points, figure
from speciate.tournaments.rendering.tables import sections, verdict
from speciate.tournaments.report.measures import BudgetLaw, EntropyFit, Estimate, Reached
from speciate.tournaments.report.models import Report

_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 25%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1400px; margin: 2rem auto; padding: 0 1rem; }
section { margin: 2.5rem 0; overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td:first-child, .whole { white-space: nowrap; }
.right { text-align: right; }
summary { cursor: pointer; }
svg { max-width: 100%; height: auto; margin: 1rem 1rem 0 0; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.frame { fill: none; stroke: var(--line); }
"""
_UNFOLDED: Final = 24  # longer tables are folded
_INTERVAL: Final = re.compile(r"\[[-+.,∞ \de]+\]")
# Load no resource, even if a text contains markup.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    title = report.design.declared.title or report.design.declared.slug
    body = "".join(
        _section(section, _FIGURES[section.key](report) if section.key in _FIGURES else "")
        for section in sections(report)
    )
    sentences = (*map(method_verdict, report.standings.methods), *map(verdict, report.standings.comparisons))
    verdicts = "".join(f"<li>{escape(each)}</li>" for each in sentences)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1><p><strong>{escape(conclusion(report))}</strong></p><ul>{verdicts}</ul>{body}</main></body></html>\n"
    )


def _section(section: Section, figures: str) -> str:
    heads = "".join(f"<th{_side(name)} scope=col>{escape(name.removeprefix('>'))}</th>" for name in section.columns)
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_side(name)}>{_cell(cell)}</td>" for name, cell in zip(section.columns, row, strict=True))
        + "</tr>"
        for row in section.rows
    )
    note = f"<p>{escape(section.note)}</p>" if section.note else ""
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    if len(section.rows) > _UNFOLDED:
        table = f"<details><summary>{len(section.rows):,} rows</summary>{table}</details>"
    return f"<section><h2>{escape(section.title)}</h2>{note}{figures}{table}</section>\n"


def _cell(text: str) -> str:
    return _INTERVAL.sub(r'<span class="whole">\g<0></span>', escape(text))


def _side(column: str) -> str:
    return ' class="right"' if column.startswith(">") else ""


def _draws(report: Report) -> str:
    passed = [Line(d.entrant, _known(d.k, d.pass_at)) for d in report.draws]
    best = [Line(d.entrant, _known(d.k, d.best_at)) for d in report.draws]
    return figure(passed, "k runs", "pass@k") + figure(best, "k runs", "best@k")


def _reached(report: Report) -> str:
    units = dict.fromkeys(curve.unit for curve in report.reached)
    return "".join(
        figure(_curves([c for c in report.reached if c.unit == unit]), unit, "share reached") for unit in units
    )


def _profiles(report: Report) -> str:
    lines = [Line(p.entrant, list(zip(p.factors, p.share, strict=True))) for p in report.profiles]
    return figure(lines, "factor τ of the best ERT", "share of problems", logarithmic=True)


def _laws(laws: Sequence[BudgetLaw], up: str) -> str:
    return figure([_law(law) for law in laws], "evaluations", up, logarithmic=True)


_FIGURES: Final[dict[str, Callable[[Report], str]]] = {
    "draws": _draws,
    "reached": _reached,
    "profiles": _profiles,
    "laws": lambda report: _laws(report.budget_laws, "solve rate"),
    "score-laws": lambda report: _laws(report.score_laws, "best score"),
    "entropy": lambda report: figure(
        [_entropy(fit) for fit in report.entropy_fits], "token entropy, nats", "mean reward"
    ),
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


def _entropy(fit: EntropyFit) -> Line:
    points = sorted(zip(fit.entropy, fit.reward, strict=True))
    law = []
    if fit.shown is not None:
        a, b, _ = fit.shown
        law = [(h, b - a * exp(h)) for h, _ in points]
    return Line(f"{', '.join(fit.policies)} ({fit.source})", points, law, dots=True)
