"""The population in reward space, and its Pareto front in parallel coordinates: crossing lines are trade-offs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import SERIES, Chart, Table, axis, hover, scatter, thinned
from service.dashboard.formatting import clip
from service.dashboard.objectives import shared_objectives
from service.dashboard.scales import Extent
from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.target import Target
from speciate.storage.candidates.arrays import CandidateArrays
from speciate.tournaments.statistics.hypervolume import hypervolume_curve

MAX_POINTS: Final = 4000
"""Dominated points drawn: about as many as a screen can separate."""

MAX_FRONT: Final = 1000
"""Candidates of the front drawn; ``Population.drawn_front`` chooses them."""

MAX_AXES: Final = 12
"""Objectives up to which each has an axis of its own; with more, the chart of solved objectives is shown."""

MAX_LINES: Final = 150
_MAX_VOLUMES: Final = 48


@dataclass(frozen=True)
class Population:
    """The candidates of a run with values derived from them."""

    problem: Problem
    columns: CandidateArrays
    run_url: str
    refuted: tuple[tuple[int, str], ...] = ()  # claims: number of the candidate and name of the target
    known_front: IntArray | None = None  # that of the first ``known`` candidates; of noisy rewards best first
    known: int = 0

    @property
    def link(self) -> str:
        return f"{self.run_url}/candidates/{{}}"

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """Bit masks of the targets that the candidates meet, without refuted ones, shape (n,)."""
        targets = self.columns.targets.copy()
        for i, target in enumerate(self.problem.targets):
            if numbers := [number for number, name in self.refuted if name == target.name]:
                targets[np.isin(self.columns.number, numbers)] &= ~(1 << i)
        return targets

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """True for scored candidates that satisfy every constraint, shape (n,)."""
        feasible = self.columns.scored.copy()
        if self.problem.is_noisy:
            feasible &= ~self.columns.duplicate  # one more evaluation, and no program of its own
        feasible[feasible] = self.problem.space.violation(self.columns.rewards[feasible]) <= 0.0
        return feasible

    @cached_property
    def varies(self) -> dict[str, bool]:
        """Which objectives take more than one value among the feasible (else the scored) candidates."""
        rewards = self.columns.rewards[self.feasible if self.feasible.any() else self.columns.scored]
        return dict(zip(self.problem.space.names, (rewards != rewards[:1]).any(axis=0).tolist(), strict=True))

    @cached_property
    def front(self) -> NDArray[np.int64]:
        """Rows of the non-dominated candidates without duplicates, ordered by the first objective."""
        rows = self.columns.front(self.problem.space, self.known_front, self.known)
        return rows[np.argsort(-self.problem.space.normalise(self.columns.rewards[rows])[:, 0], kind="stable")]

    @cached_property
    def ranked_front(self) -> list[int]:
        """Rows of the front, best candidate first, as in the API."""
        if self.problem.is_noisy and self.known_front is not None:
            return list(self.known_front.tolist())
        columns, rows = self.columns, self.front.tolist()
        merits = self.problem.ranking.merits(columns.rewards[rows].tolist(), self.targets[rows].tolist())
        ranks = dict(zip(rows, zip(merits, (-columns.number[rows]).tolist(), strict=True), strict=True))
        return sorted(ranks, key=ranks.__getitem__, reverse=True)

    def drawn_front(self, limit: int) -> NDArray[np.int64]:
        """Return about ``limit`` rows of the front, evenly spaced along the first objective.

        Those with the least and the greatest value of an objective, the best candidate, and the best of those that meet
        each target are always among them.
        """
        front, ranked = self.front, np.array(self.ranked_front, dtype=np.int64)
        if len(front) <= limit:
            return front
        rewards, met = self.columns.rewards[front], self.targets[ranked]
        holders = [np.flatnonzero(met >> i & 1)[:1] for i in range(len(self.problem.targets))]
        kept = [front[thinned(len(front), limit)], front[rewards.argmin(axis=0)], front[rewards.argmax(axis=0)]]
        return front[np.isin(front, np.concatenate([*kept, ranked[:1], ranked[np.concatenate(holders)]]))]

    def extent(self, objective: Objective) -> Extent:
        """Return the values of an axis; infeasible candidates do not set its range unless all are infeasible."""
        scored, name = self.columns.scored, objective.name
        counted = self.feasible[scored] if self.feasible.any() else scored[scored]
        values = self.columns.rewards[scored, self.problem.space.names.index(name)]
        aims = [limit for limit, targets in limits(self.problem, name).items() if any(each.unlock for each in targets)]
        return Extent(values, counted, tuple(aims))

    @cached_property
    def leading(self) -> NDArray[np.bool_]:
        """True for feasible candidates that meet the targets of the best one, shape (n,)."""
        met = np.unique(self.targets[self.feasible]).tolist()
        best = max(met, key=lambda targets: (*self.problem.ranking.standing(targets), targets), default=0)
        leading: NDArray[np.bool_] = self.feasible & (self.targets & best == best)
        return leading

    def improvements(self, objective: Objective, among: NDArray[np.bool_]) -> list[tuple[int, float]]:
        """Return the rows at which the best value of an objective among some candidates changed, with the values."""
        rows = np.flatnonzero(among)
        values = self.columns.rewards[rows, self.problem.space.names.index(objective.name)]
        best = np.maximum.accumulate(values if objective.direction is Direction.MAXIMIZE else -values)
        steps = np.diff(best, prepend=-np.inf) > 0
        return list(zip(rows[steps].tolist(), values[steps].tolist(), strict=True))

    @cached_property
    def hypervolume_curve(self) -> tuple[NDArray[Any], FloatArray] | None:
        """Evaluations and the hypervolume of the candidates until then, (m,) each; None without a scored candidate."""
        rows = np.flatnonzero(self.columns.scored & ~self.columns.duplicate)
        if not len(rows):
            return None
        last = np.array(thinned(len(rows), _MAX_VOLUMES))
        volumes = hypervolume_curve(self.problem.space.normalise(self.columns.rewards[rows]), (last + 1).tolist())
        evaluations = self.columns.evaluations
        return np.append(evaluations[rows[last]], evaluations[-1]), np.append(volumes, volumes[-1])

    def best_curve(self, objective: Objective) -> tuple[NDArray[Any], FloatArray] | None:
        """Return evaluations and the best value of feasible candidates until then, continued to the last evaluation.

        None without a feasible candidate.
        """
        steps, evaluations = self.improvements(objective, self.feasible), self.columns.evaluations
        if not steps:
            return None
        rows, values = zip(*steps, strict=True)
        return np.append(evaluations[[*rows]], evaluations[-1]), np.array([*values, values[-1]])


def limits(problem: Problem, name: str) -> dict[float, list[Target]]:
    """Return the numbers with which targets compare an objective, and these targets."""
    targets_by_limit: dict[float, list[Target]] = {}
    for target, rule in zip(problem.targets, problem.rules, strict=True):
        for word, limit in zip(rule.tokens, rule.tokens[2:], strict=False):
            if word == name:
                targets_by_limit.setdefault(float(limit), []).append(target)
    return targets_by_limit


def limit_lines(problem: Problem, objective: Objective, along: str) -> list[dict[str, Any]]:
    """Return the targets' limits of an objective as dashed lines across its axis, such as ``y2``."""
    mine, other = along[0], "y" if along[0] == "x" else "x"
    lines = []
    for limit, targets in limits(problem, objective.name).items():
        colour = "--accent" if any(target.unlock for target in targets) else "--muted"
        names = clip(", ".join(target.name for target in targets), 40)
        ends = {f"{mine}ref": along, f"{mine}0": limit, f"{mine}1": limit}
        ends |= {f"{other}ref": "paper", f"{other}0": 0, f"{other}1": 1}
        label = {"text": names, "textposition": "end", "textangle": 0, "font": {"size": 10, "color": colour}}
        label |= {"xanchor": "right"} if mine == "y" else {"xanchor": "left", "yanchor": "top"}
        line = {"color": colour, "width": 1, "dash": "dash"}
        lines.append({"type": "line", **ends, "label": label, "line": line, "layer": "below"})
    return lines


def axes(populations: Sequence[Population], x: str, y: str) -> tuple[Objective, Objective | None]:
    """Return the two objectives to draw: the requested ones, else the first that the targets compare.

    An objective in which all candidates are equal is chosen only if no other is left. The populations share an
    objective; the targets of the first one count. Names of unknown objectives are ignored.
    """
    shared = shared_objectives([each.problem for each in populations])
    named = {objective.name: objective for objective in shared}
    preferred = sorted(shared, key=lambda objective: not any(each.varies[objective.name] for each in populations))
    first = named.get(x) or next((objective for objective in preferred if objective.name != y), preferred[0])
    second = named.get(y) or next((objective for objective in preferred if objective is not first), None)
    return first, second


def population_chart(population: Population, first: Objective, second: Objective) -> Chart:
    columns, names, front = population.columns, population.problem.space.names, population.front
    drawn_front = population.drawn_front(MAX_FRONT)
    picked = names.index(first.name), names.index(second.name)
    rest = np.setdiff1d(np.flatnonzero(population.feasible), front)
    infeasible = np.setdiff1d(np.flatnonzero(columns.scored & ~population.feasible), front)
    seed = np.flatnonzero(columns.scored & columns.seed)
    dominated, outside = (rows[thinned(len(rows), MAX_POINTS)] for rows in (rest, infeasible))
    hovertemplate = hover("candidate %{customdata}", f"{first.name}: %{{x}}", f"{second.name}: %{{y}}")
    line = {"shape": "linear", "width": 1, "dash": "dot", "color": SERIES[1]}
    front_look: dict[str, Any] = {"mode": "markers", "line": line}
    if len(population.problem.space.selected) == 2:
        front_look["mode"] = "lines+markers"
    looks: list[tuple[str, NDArray[np.int64], dict[str, Any], dict[str, Any]]] = [
        ("infeasible", outside, {"size": 6, "color": SERIES[6], "opacity": 0.45, "symbol": "x-thin-open"}, {}),
        ("dominated", dominated, {"size": 5, "color": SERIES[0], "opacity": 0.45}, {}),
        ("front", drawn_front, {"size": 9, "color": SERIES[1], "symbol": "diamond"}, front_look),
        ("seed", seed, {"size": 12, "color": SERIES[4], "symbol": "star"}, {}),
    ]
    counts = {"infeasible": len(infeasible), "dominated": len(rest), "front": len(front), "seed": len(seed)}
    traces = [
        scatter(
            **{"mode": "markers", **more},
            x=columns.rewards[rows, picked[0]],
            y=columns.rewards[rows, picked[1]],
            hovertemplate=hovertemplate,
            name=f"{name} ({counts[name]:,})" if len(rows) > 1 else name,
            customdata=columns.number[rows],
            marker=marker,
        )
        for name, rows, marker, more in looks
        if len(rows)
    ]
    hidden = sum(counts.values()) - sum(len(rows) for _, rows, _, _ in looks)
    note = f"Each point is a candidate; diamonds are the Pareto front. {better(first)}, {better(second)}." + (
        f" {hidden:,} points are not drawn; the run's export has all." if hidden else ""
    )
    lines = [*limit_lines(population.problem, first, "x"), *limit_lines(population.problem, second, "y")]
    layout = {"xaxis": axis(first.directed), "yaxis": axis(second.directed), "hovermode": "closest", "shapes": lines}
    extents = {"x": population.extent(first), "y": population.extent(second)} if traces else {}
    table = front_table(population)
    title = "Population in reward space"
    return Chart("population", title, note, traces, layout, table, height=26, link=population.link, extents=extents)


def parallel_chart(population: Population) -> Chart:
    """Draw the front as lines over all objectives, each from its worst value drawn to its best one, which is on top."""
    columns, space, front = population.columns, population.problem.space, population.front
    objectives = space.selected[:MAX_AXES]
    picked = [space.names.index(objective.name) for objective in objectives]
    seed = np.flatnonzero(columns.scored & columns.seed)[:1]
    best = np.array(population.ranked_front[:1], dtype=np.int64)
    shown = population.drawn_front(MAX_LINES)
    looks: list[tuple[str, NDArray[np.int64], dict[str, Any], float]] = [
        (f"front ({len(front):,})", shown, {"width": 1, "color": SERIES[0]}, 0.4),
        ("seed", seed, {"width": 2, "color": SERIES[4], "dash": "dot"}, 1.0),
        ("best", best, {"width": 2.6, "color": SERIES[1]}, 1.0),
    ]
    drawn = columns.rewards[np.union1d(shown, seed)][:, picked]
    data = [
        {**_lines(population, objectives, rows, picked, drawn), "name": name, "line": line, "opacity": opacity}
        for name, rows, line, opacity in looks
        if len(rows)
    ]
    layout = {
        "xaxis": {"type": "category", "tickfont": {"size": 10}, **({"tickangle": 0} if len(objectives) <= 4 else {})},
        "yaxis": {"visible": False, "range": [-0.05, 1.05]},
        "hovermode": "closest",
        "showlegend": True,
    }
    hidden = len(front) - len(shown)
    note = (
        "Each line is a candidate of the front. Crossing lines are trade-offs; the better end of each axis is on top."
        + (f" {hidden:,} candidates of the front are not drawn; the download has all." if hidden else "")
    )
    return Chart("parallel", "Trade-offs", note, data, layout, front_table(population), height=14, link=population.link)


def _lines(
    population: Population, objectives: tuple[Objective, ...], rows: Any, picked: list[int], drawn: FloatArray
) -> dict[str, Any]:
    """Return n candidates as one trace with a gap after each: a hundred traces take a browser a hundred times as long.

    Heights are shares of the span of the m rows of ``drawn``, shape (m, d).
    """
    raw, low, high = population.columns.rewards[rows][:, picked], drawn.min(axis=0), drawn.max(axis=0)
    rising = np.array([objective.direction is Direction.MAXIMIZE for objective in objectives])
    worst, top = np.where(rising, low, high), np.where(rising, high, low)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(top == worst, 1.0, (raw - worst) / (top - worst))
    names = [f"{o.directed}<br>{t:.4g}<br>to {w:.4g}" for o, t, w in zip(objectives, top, worst, strict=True)]
    numbers = population.columns.number[rows].tolist()
    return scatter(
        "lines+markers",
        [*names, None] * len(numbers),
        [value for share in shares.tolist() for value in (*share, None)],
        hover("candidate %{customdata}", "%{text}"),
        customdata=[number for number in numbers for _ in (*names, None)],
        text=[
            text
            for point in raw.tolist()
            for text in (*(f"{o.name}: {value:.4g}" for o, value in zip(objectives, point, strict=True)), "")
        ],
        marker={"size": 4},
    )


def front_table(population: Population) -> Table:
    columns, space = population.columns, population.problem.space
    first = sorted(range(len(space.names)), key=lambda i: space.objectives[i] not in space.selected)
    shown = sorted(first[:MAX_AXES])
    rows = [
        (
            int(columns.number[row]),
            int(columns.evaluations[row]),
            int(columns.island[row]),
            *columns.rewards[row][shown].tolist(),
        )
        for row in population.ranked_front
    ]
    links = tuple(population.link.format(row[0]) for row in rows)
    names = [space.names[i] for i in shown]
    return Table(("candidate on the front", "at evaluations", "island", *names), rows, links)


def better(objective: Objective) -> str:
    """Return a phrase for the better end of an objective, such as "cost: lower is better"; none for a record."""
    if not objective.aim:
        return f"{objective.name}: only recorded"
    role = "" if objective.role is ObjectiveRole.OBJECTIVE else f" ({objective.role.value})"
    return f"{objective.name}: {objective.comparative} is better{role}"
