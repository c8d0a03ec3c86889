"""Best values so far and failures of a run."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from service.dashboard.charts import SERIES, Chart, Table, axis, bars, escaped, hover, scatter, thinned
from service.dashboard.figures.population import MAX_AXES, Population, limit_lines
from service.dashboard.figures.solved import feasible_only, solved_so_far_chart
from service.dashboard.formatting import clip
from service.dashboard.objectives import by_importance
from service.dashboard.scales import padded
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.target import ClaimState
from speciate.schema.runs import RankedCandidate
from speciate.schema.unlocks import UnlockRecord

MAX_OBJECTIVES: Final = 4
"""Objectives drawn; the table has all."""

_HEIGHTS: Final = (16, 16, 18, 24, 30)  # by the number of objectives drawn

_MAX_STEPS: Final = 400
_MAX_FAILURES: Final = 12


def progress_chart(
    population: Population, claims: Sequence[UnlockRecord] = (), best: RankedCandidate | None = None
) -> Chart:
    """Draw the best value so far of each objective, in its unit, on an axis of its own.

    Without a feasible candidate, the constraints are drawn. The values of ``best`` are marked: those of one candidate,
    and if rewards are noisy, with the interval after the end of the run.
    """
    problem = population.problem
    if len(problem.space.selected) > MAX_AXES:
        return solved_so_far_chart(population)
    feasible = bool(population.feasible.any())
    role = ObjectiveRole.OBJECTIVE if feasible else ObjectiveRole.CONSTRAINT
    objectives = [o for o in by_importance(problem) if o.role is role]
    drawn = objectives[:MAX_OBJECTIVES]
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"shapes": [], "annotations": [], "showlegend": False, "hovermode": "closest"}
    for rank, objective in enumerate(drawn):
        name = f"y{rank + 1}" if rank else "y"
        traces = [*_progress_lines(population, objective, claims), *_best_value(population, objective, best)]
        data += [{**trace, "yaxis": name} for trace in traces]
        lines = limit_lines(problem, objective, name)
        # Named beside the title: in a small chart, labels at the lines would be cut off or lie over the curve.
        aims = ", ".join(f"{line.pop('label')['text']} {line['y0']:.4g}" for line in lines)
        if len(problem.targets) == 1 or len(aims) > 30:  # its name would be repeated, or values cut off
            aims = ", ".join(f"{line['y0']:.4g}" for line in lines)
            aims = aims and f"target{'s' * (len(lines) > 1)} {aims}"
        layout["shapes"] += lines
        drawn_values = [*(line["y0"] for line in lines), *(value for trace in traces for value in trace["y"])]
        top = 1 - rank / len(drawn)
        domain, ticks = [top - 0.7 / len(drawn), top], 4 if len(drawn) < 3 else 3
        layout[name.replace("y", "yaxis")] = {
            "domain": domain,
            "nticks": ticks,
            "type": "linear",
            "range": padded(drawn_values),
        }
        text = clip(f"<b>{objective.directed}</b>{' · ' * bool(aims)}{aims}", 60)
        title = {"text": text, "xanchor": "left", "yanchor": "bottom", "x": 0, "y": top}
        layout["annotations"].append({**title, "xref": "paper", "yref": "paper", "showarrow": False})
        layout["xaxis"] = axis("evaluations", anchor=name, rangemode="tozero")
    columns = population.columns
    rows = [
        (objective.name, int(columns.number[row]), int(columns.evaluations[row]), value)
        for objective in objectives
        for row, value in population.improvements(objective, population.leading if feasible else columns.scored)
    ]
    links = tuple(population.link.format(row[1]) for row in rows)
    table = Table(("objective", "candidate", "at evaluations", "best"), rows, links)
    note = (
        "The best value so far of each objective among the candidates that meet the targets of the best one; dotted:"
        " among all. Dashed lines are the targets beside the name; stars mark confirmed ones."
    )
    data = data if any(len(trace["x"]) for trace in data) else []
    if best is not None:
        note += " Diamonds are the values of the best candidate, which need not be best in each objective."
    if best is not None and best.margin:
        note += " The bar is its interval from evaluations after the end."
    note += feasible_only(population)
    caption = (
        "best of each objective, from any candidate; ◆\N{NO-BREAK SPACE}the best candidate"
        if len(drawn) > 1 and best
        else ""
    )
    height, link = _HEIGHTS[len(drawn)], population.link
    return Chart("progress", "Progress", note, data, layout, table, height, caption, link)


def _progress_lines(
    population: Population, objective: Objective, claims: Sequence[UnlockRecord]
) -> Iterator[dict[str, Any]]:
    """Yield the best values among all candidates, those among the leading ones, and the confirmed targets."""
    columns = population.columns
    every = population.improvements(objective, population.feasible if population.feasible.any() else columns.scored)
    leading = population.improvements(objective, population.leading) if population.feasible.any() else every
    template = hover(f"best {objective.name} so far: %{{y:.10g}}", "candidate %{customdata}", "at %{x} evaluations")
    for steps, look in ((every, {"color": "--muted", "dash": "dot"}), (leading, {"color": SERIES[0], "width": 2})):
        if not steps or (steps == leading and look["color"] != SERIES[0]):
            continue
        kept = [steps[i] for i in (*thinned(len(steps), _MAX_STEPS), -1)]
        numbers = [int(columns.number[row]) for row, _ in kept]
        x = [int(columns.evaluations[row]) for row, _ in kept[:-1]] + [int(columns.evaluations[-1])]
        line: dict[str, Any] = {"shape": "hv", **look}
        yield scatter("lines", x, [value for _, value in kept], template, line=line, customdata=numbers)
    met = [
        (row, claim)
        for claim in claims
        if claim.state is ClaimState.CONFIRMED
        for row in np.flatnonzero(columns.number == claim.number).tolist()
    ]
    if met:
        rows = np.array([row for row, _ in met])
        more = {"customdata": columns.number[rows], "text": [claim.target for _, claim in met]}
        marker = {"size": 11, "symbol": "star", "color": "--good"}
        template = hover("%{text} confirmed", "candidate %{customdata}", "at %{x} evaluations")
        at = [claim.evaluations for _, claim in met]
        values = columns.rewards[rows, population.problem.space.names.index(objective.name)]
        yield scatter("markers", at, values, template, marker=marker, cliponaxis=False, **more)


def _best_value(population: Population, objective: Objective, best: RankedCandidate | None) -> Iterator[dict[str, Any]]:
    if best is None or not len(population.columns):
        return
    text, more = "", {}
    if margin := best.margin.get(objective.name):
        text = f" ±{margin:.2g}, 95 % interval from {best.evaluations} evaluations after the end"
        more["error_y"] = {"type": "data", "array": [margin], "color": SERIES[1]}
    template = hover("best candidate, %{customdata}", f"{objective.name}: %{{y:.10g}}{text}")
    at, value = [int(population.columns.evaluations[-1])], [best.rewards[objective.name]]
    marker = {"size": 9, "symbol": "diamond", "color": SERIES[1]}
    yield scatter("markers", at, value, template, marker=marker, customdata=[best.number], cliponaxis=False, **more)


def failures_chart(population: Population) -> Chart:
    counted = Counter(reason for reason in population.columns.failure if reason).most_common()
    rows = [(name, count, count / len(population.columns)) for name, count in counted]
    drawn = rows[:_MAX_FAILURES][::-1]
    names, counts = [escaped(name[:60]) for name, _, _ in drawn], [count for _, count, _ in drawn]
    look = {"orientation": "h", "textposition": "auto", "marker": {"color": SERIES[4]}}
    shares = [f"{share:.1%}" for _, _, share in drawn]
    data = [bars(counts, names, hover("%{y}", "%{x} candidates"), text=shares, **look)] if drawn else []
    # The most frequent reason is on top; two bars are as thick as ten.
    top = len(drawn) - 0.5
    layout = {
        "bargap": 0.35,
        "xaxis": axis("candidates"),
        "yaxis": {"automargin": True, "type": "category", "range": [top - max(len(drawn), 6), top]},
        "showlegend": False,
    }
    note = "Candidates without rewards, by reason."
    table = Table(("failure", "candidates", "share"), rows)
    return Chart("failures", "Failures by reason", note, data, layout, table, height=16)
