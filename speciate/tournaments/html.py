"""A report as one HTML file: no script, no network, every text escaped, figures drawn as inline SVG."""

from __future__ import annotations

from html import escape
from typing import Final

from speciate.tournaments.report import BudgetLaw, Reached, Report
from speciate.tournaments.tables import Section, sections, verdict

_STYLE: Final = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 25%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }
section { margin: 2.5rem 0; overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
.right { text-align: right; }
svg { max-width: 100%; height: auto; margin: 1rem 1rem 0 0; }
svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.frame { fill: none; stroke: var(--line); }
"""
# Nothing may be loaded, whatever a text contains.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b5a300")
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")  # colour is never the only cue
_WIDTH, _HEIGHT, _LEFT, _TOP, _LEGEND = 380.0, 240.0, 45.0, 12.0, 18.0
_TICKS: Final = (0.0, 0.5, 1.0)


def page(report: Report) -> str:
    """Return the whole file."""
    title = report.design.declared.title or report.design.declared.slug
    body = "".join(_section(section, _figures(section.key, report)) for section in sections(report))
    told = "".join(f"<li>{escape(verdict(each))}</li>" for each in report.standings.comparisons)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1><ul>{told}</ul>{body}</main></body></html>\n"
    )


def _section(section: Section, figures: str) -> str:
    heads = "".join(f"<th{_side(name)} scope=col>{escape(name.removeprefix('>'))}</th>" for name in section.columns)
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_side(name)}>{escape(cell)}</td>" for name, cell in zip(section.columns, row, strict=True))
        + "</tr>"
        for row in section.rows
    )
    note = f"<p>{escape(section.note)}</p>" if section.note else ""
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    return f"<section><h2>{escape(section.title)}</h2>{note}{figures}{table}</section>\n"


def _side(column: str) -> str:
    return ' class="right"' if column.startswith(">") else ""


def _figures(key: str, report: Report) -> str:
    if key == "reached":
        units = dict.fromkeys(curve.unit for curve in report.reached)
        return "".join(
            _figure(unit, [(c.entrant, _steps(c)) for c in report.reached if c.unit == unit]) for unit in units
        )
    if key == "laws":
        return _figure("evaluations, measured", [(law.entrant, _measured(law)) for law in report.budget_laws])
    return ""


Points = list[tuple[float, float]]


def _steps(curve: Reached) -> Points:
    points: Points = [(0.0, 0.0)]
    for spent, share in zip(curve.spent, curve.share, strict=True):
        points += [(spent, points[-1][1]), (spent, share)]
    return points


def _measured(law: BudgetLaw) -> Points:
    return list(zip(law.budgets, law.measured, strict=False))


def _figure(unit: str, lines: list[tuple[str, Points]]) -> str:
    """Return a figure of shares between 0 and 1 against what was spent."""
    lines = [(name, points) for name, points in lines if points]
    if not lines:
        return ""
    most = max(x for _, points in lines for x, _ in points) or 1.0
    bottom = _TOP + _HEIGHT
    drawn = [f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}"/>']
    for i, (name, points) in enumerate(lines):
        colour, dash = _COLOURS[i % len(_COLOURS)], _DASHES[i // len(_COLOURS) % len(_DASHES)]
        pen = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        path = " ".join(f"{_LEFT + x / most * _WIDTH:.1f},{bottom - y * _HEIGHT:.1f}" for x, y in points)
        y = bottom + 45 + i * _LEGEND
        drawn.append(f'<polyline fill="none" {pen} points="{path}"/>')
        drawn.append(f'<line x1="{_LEFT}" x2="{_LEFT + 30}" y1="{y - 4}" y2="{y - 4}" {pen}/>')
        drawn.append(f'<text x="{_LEFT + 38}" y="{y}">{escape(name)}</text>')
    drawn += [f'<text x="{_LEFT - 30}" y="{bottom - y * _HEIGHT + 4:.0f}">{y}</text>' for y in _TICKS]
    drawn += [
        f'<text x="{_LEFT + x * _WIDTH:.0f}" y="{bottom + 15}" text-anchor="middle">{x * most:,.0f}</text>'
        for x in _TICKS
    ]
    label = f"share reached against {escape(unit)}"
    drawn.append(f'<text x="{_LEFT + _WIDTH / 2:.0f}" y="{bottom + 30}" text-anchor="middle">{label}</text>')
    height = bottom + 50 + len(lines) * _LEGEND
    return (
        f'<svg role="img" aria-label="{label}" width="{_LEFT + _WIDTH + 25:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {_LEFT + _WIDTH + 25:.0f} {height:.0f}">{"".join(drawn)}</svg>'
    )
