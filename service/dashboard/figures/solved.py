"""Charts for hundreds of objectives, such as test cases: which are solved, and by how many candidates."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import Chart, Table, axis, bars, hover, step_line, thinned
from service.dashboard.figures.population import Population
from speciate.domain.arrays import FloatArray
from speciate.domain.objective import Direction, ObjectiveRole

_MAX_STEPS: Final = 400
_BEST, _OTHERS, _NONE = "best candidate", "others", "none"
_GROUPS: Final = (
    (_BEST, "solved by the best candidate", "--good", "", 1.0),
    (_OTHERS, "solved by others only", "--warn", "/", 1.0),
    (_NONE, "unsolved", "--bad", "x", 0.25),
)


def solved_objectives_chart(population: Population) -> Chart:
    """Draw every objective as a bar, easiest first: the share of candidates that solve it."""
    rows = _solvers(population)
    data: list[dict[str, Any]] = []
    for kind, label, colour, pattern, opacity in _GROUPS:
        at = [i for i, row in enumerate(rows) if row[1] == kind]
        if at:
            # An unsolved objective would have no height: it is drawn as a full, pale bar.
            heights = [rows[i][3] if rows[i][2] else 1.0 for i in at]
            template = hover("%{text}", "solved by %{customdata:.1%} of candidates", label)
            texts = {"text": [rows[i][0] for i in at], "textposition": "none", "customdata": [rows[i][3] for i in at]}
            hatch = {"shape": pattern, "fillmode": "overlay", "fgcolor": "--surface", "fgopacity": 0.8, "size": 4}
            marker = {"color": colour, "opacity": opacity, "pattern": hatch}
            data.append(bars(at, heights, template, name=f"{label} ({len(at)})", marker=marker, **texts))
    layout = {
        "bargap": 0.05,
        "barmode": "overlay",
        "xaxis": axis("objectives, easiest first", showticklabels=False),
        "yaxis": axis("share of candidates", tickformat=".0%", range=[0, 1]),
    }
    total = len(population.problem.space.selected)
    note = f"{total} objectives, sorted by how many candidates reach the better end of their range."
    table = Table(("objective", "solved by", "candidates", "share"), rows)
    title = "Solved and unsolved objectives"
    return Chart("solved", title, note + feasible_only(population), data, layout, table, height=18)


def solved_so_far_chart(population: Population) -> Chart:
    columns = population.columns
    solved = solved_matrix(population)
    data: list[dict[str, Any]] = []
    rows: list[tuple[int, int, int]] = []
    if len(columns) and columns.scored.any():
        by_any = np.logical_or.accumulate(solved, axis=0).sum(axis=1)
        by_one = np.maximum.accumulate(solved.sum(axis=1))
        changes = np.flatnonzero((np.diff(by_any) != 0) | (np.diff(by_one) != 0)) + 1
        steps = [0, *changes.tolist(), len(columns) - 1]
        steps = [steps[i] for i in thinned(len(steps), _MAX_STEPS)]
        rows = [(int(columns.evaluations[s]), int(by_any[s]), int(by_one[s])) for s in steps]
        for rank, (name, values) in enumerate((("by any candidate", by_any), ("by the best candidate", by_one))):
            template = hover(f"%{{y}} {name}", "at %{x} evaluations")
            data.append(step_line(rank, columns.evaluations[steps], values[steps], template, name=name))
    title = f"objectives solved, of {solved.shape[1]}"
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(title, rangemode="tozero")}
    note = (
        "Objectives brought to the better end of their range. A gap between the lines means that no single candidate"
        " solves them all."
    )
    table = Table(("evaluations", "by any candidate", "by one"), rows)
    return Chart("progress", "Objectives solved so far", note + feasible_only(population), data, layout, table)


def solved_matrix(population: Population) -> NDArray[np.bool_]:
    """Return which selected objectives are at the better end of their range, shape (n, k).

    An infeasible candidate solves none.
    """
    space = population.problem.space
    picked = [space.names.index(o.name) for o in space.selected]
    signs = np.array([1.0 if o.direction is Direction.MAXIMIZE else -1.0 for o in space.selected])
    ends = np.array([o.range[o.direction is Direction.MAXIMIZE] for o in space.selected])
    raw: FloatArray = population.columns.rewards[:, picked]
    with np.errstate(invalid="ignore"):
        return np.asarray((raw - ends) * signs >= -1e-9) & population.feasible[:, None]


def feasible_only(population: Population) -> str:
    """Return the sentence that infeasible candidates do not count; empty for a problem without constraints."""
    constrained = any(o.role is ObjectiveRole.CONSTRAINT for o in population.problem.objectives)
    return " Infeasible candidates do not count." if constrained else ""


def _solvers(population: Population) -> list[tuple[str, str, int, float]]:
    """Return name, kind of solver, solving candidates and their share for each objective, easiest first."""
    solved = solved_matrix(population)[population.columns.scored]
    if not len(solved):
        return []
    names = [objective.name for objective in population.problem.space.selected]
    counts = solved.sum(axis=0)
    best = solved[np.argmax(solved.sum(axis=1))]
    kinds = np.where(best, _BEST, np.where(counts > 0, _OTHERS, _NONE)).tolist()
    order = np.argsort(-counts, kind="stable").tolist()
    return [(names[j], kinds[j], int(counts[j]), float(counts[j] / len(solved))) for j in order]
