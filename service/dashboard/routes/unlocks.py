"""Unlock matrix: problems by policies, and the difference of two columns."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from service.dashboard.charts import Table, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.pages import address, page
from service.dashboard.parameters import Text
from service.dashboard.policy_pairs import COMPARED, PairKey, PolicyPair, compared, listed_pairs, parse_pair
from speciate.domain.visibility import Visibility
from speciate.schema.problems import ProblemSummary
from speciate.schema.unlocks import MatrixCell
from speciate.storage.cursors import every

router = APIRouter(include_in_schema=False, prefix="/unlocks")

MAX_ROWS: Final = 300
MAX_COLUMNS: Final = 16


@dataclass(frozen=True)
class UnlockRow:
    problem: ProblemSummary
    cells: list[MatrixCell | None]
    """One per column; None if the pair never ran on the problem."""
    kind: str
    """One of ``COMPARED``; empty without a comparison."""

    @property
    def unlocked(self) -> int:
        return sum(1 for cell in self.cells if cell is not None and cell.unlocked)


@dataclass(frozen=True)
class UnlockMatrix:
    """The whole matrix; ``a`` and ``b`` are the pairs to compare."""

    pairs: list[PolicyPair]
    hidden: int
    rows: list[UnlockRow]
    a: PolicyPair | None
    b: PolicyPair | None
    names: list[str]


@router.get("")
def show_matrix(
    request: Request, dashboard: DashboardDep, a: Text = "", b: Text = "", problems: Text = "", show: Text = ""
) -> Response:
    """Show the matrix; ``a`` and ``b`` name two pairs, ``problems`` a problem set, ``show`` a kind of rows."""
    matrix = _matrix(dashboard, a, b, problems, MAX_COLUMNS)
    rows = [row for row in matrix.rows if show not in COMPARED or row.kind == show]
    context: dict[str, Any] = {
        "matrix": matrix,
        "counts": Counter(row.kind for row in matrix.rows),
        "rows": rows[:MAX_ROWS],
        "left_out": max(0, len(rows) - MAX_ROWS),
        "filters": {"a": a, "b": b, "problems": problems, "show": show},
        "kinds": COMPARED,
        "sets": [problem_set.slug for problem_set in dashboard.stores.catalog.problem_sets(limit=100).items],
        "csv": address("/unlocks/matrix.csv", a=a, b=b, problems=problems),
        "query": address("", a=a, b=b, problems=problems),
    }
    return page(request, "unlocks.html", **context)


@router.get("/matrix.csv")
def get_matrix(dashboard: DashboardDep, a: Text = "", b: Text = "", problems: Text = "") -> Response:
    """Send the matrix with all columns as CSV, each cell as unlocked/runs."""
    matrix = _matrix(dashboard, a, b, problems, None)
    rows = [
        [
            f"{row.problem.slug}@{row.problem.version}",
            *("" if cell is None else f"{cell.unlocked}/{cell.runs}" for cell in row.cells),
            row.kind,
        ]
        for row in matrix.rows
    ]
    return download(Table(("problem", *(pair.name for pair in matrix.pairs), "compared"), rows), "unlocks")


def _matrix(dashboard: DashboardContext, a: str, b: str, problems: str, most: int | None) -> UnlockMatrix:
    """Return the matrix of at most ``most`` pairs with runs: A and B, then those that unlocked the most problems."""
    catalog, cells = dashboard.stores.catalog, dashboard.stores.overview.matrix()
    first, second = parse_pair(catalog, a) if a else None, parse_pair(catalog, b) if b else None
    selected = [pair for pair in (first, second) if pair]
    unlocked: Counter[PairKey] = Counter()
    for cell in cells:
        unlocked[cell.pair] += cell.unlocked > 0
    named_pairs = listed_pairs(catalog, cells)
    keys = unlocked.keys() - {pair.key for pair in selected}
    others = sorted((pair for key, pair in named_pairs.items() if key in keys), key=lambda pair: -unlocked[pair.key])
    pairs = [*selected, *others][:most]
    cell_of = {(cell.problem_id, cell.pair): cell for cell in cells}
    unlocked_runs = {key: cell.unlocked for key, cell in cell_of.items()}
    rows = []
    ids = {cell.problem_id for cell in cells}
    every_problem = every(partial(catalog.problems, visibility=Visibility.ALL))
    with_runs = (problem for problem in every_problem if problem.id in ids)
    for problem in catalog.problem_set(problems).problems if problems else with_runs:
        kind = ""
        if first and second:
            # A pair without a run on the problem did not fail to unlock it.
            kind = compared(*(unlocked_runs.get((problem.id, pair.key)) for pair in (first, second)))
        rows.append(UnlockRow(problem, [cell_of.get((problem.id, pair.key)) for pair in pairs], kind))
    rows.sort(key=lambda row: (-row.unlocked, row.problem.slug))
    hidden = len(selected) + len(others) - len(pairs)
    return UnlockMatrix(pairs, hidden, rows, first, second, [pair.name for pair in named_pairs.values()])
