"""Path of a candidate from the seed program: its first parents, what each changed and gained."""

import math
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.best_result import MAX_CHARACTERS
from service.dashboard.figures.population import Population
from service.dashboard.objectives import by_importance
from service.dashboard.pages import page
from service.dashboard.parameters import parse_count
from service.dashboard.run_view import RunView, RunViewDep
from service.diffs import unified_diff
from speciate.domain.errors import NotFoundError

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/lineage")

_MAX_STEPS: Final = 100
_MAX_OBJECTIVES: Final = 6
_MAX_LINES: Final = 200
_HEADERS: Final = 2  # lines of a diff that name the programs


@router.get("")
def show_lineage(request: Request, view: RunViewDep, of: Annotated[str, Query(max_length=20)] = "") -> Response:
    number = parse_count(of) or view.best_result.number
    if number is not None and number not in view.population.columns.number:
        raise NotFoundError(f"there is no candidate {number} in run {view.run.id}.")
    path = [] if number is None else ancestry(view.population, number)
    steps = _steps(view, path[:_MAX_STEPS][::-1])
    is_best = view.run.best is not None and number == view.run.best.number
    return page(
        request,
        "lineage.html",
        run=view.run,
        number=number,
        is_best=is_best,
        steps=steps,
        hidden=len(path) - len(steps),
    )


def ancestry(population: Population, number: int) -> list[int]:
    """Return the rows of a candidate and its first parents, from the candidate to its root."""
    columns = population.columns
    row_of = {each: row for row, each in enumerate(columns.number.tolist())}
    rows: list[int] = []
    while (row := row_of.get(number)) is not None:
        rows.append(row)
        number = int(columns.parent[row])
    return rows


def _steps(view: RunView, path: list[int]) -> list[dict[str, Any]]:
    """Return the candidates of the path: the value, change and verdict of each objective, and the changed lines.

    ``cut`` is True if there are more lines, ``gain`` if an objective is better than the parent's.
    """
    columns, names = view.population.columns, view.problem.space.names
    numbers = columns.number[path].tolist()
    programs = view.dashboard.stores.queries.programs(view.run.id, numbers)
    objectives = [(o, columns.rewards[:, names.index(o.name)]) for o in by_importance(view.problem)[:_MAX_OBJECTIVES]]
    steps: list[dict[str, Any]] = []
    for i, row in enumerate(path):
        values = []
        for objective, rewards in objectives:
            value, parent = float(rewards[row]), float(rewards[path[i - 1]]) if i else math.nan
            verdict = "" if math.isnan(parent) or math.isnan(value) else objective.verdict(value, parent)
            values.append((objective, value, value - parent if verdict in {"better", "worse"} else None, verdict))
        text, lines = "", list[str]()
        if i:
            old, new = (programs.get(number, "") for number in numbers[i - 1 : i + 1])
            text = unified_diff(old, new, before="parent", after="child").text
            lines = text[:MAX_CHARACTERS].split("\n")[_HEADERS:]
        steps.append(
            {
                "number": numbers[i],
                "evaluations": int(columns.evaluations[row]),
                "failure": columns.failure[row],
                "values": values,
                "diff": lines[:_MAX_LINES],
                "cut": len(lines) > _MAX_LINES or len(text) > MAX_CHARACTERS,
                "gain": any(verdict == "better" for *_, verdict in values),
            }
        )
    return steps
