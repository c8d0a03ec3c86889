"""Unlock matrix: problems by policies, and the difference of two columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.charts import Table, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.pages import address, page
from service.dashboard.policy_pairs import PolicyPair, listed_pairs, parse_pair
from speciate.domain.visibility import Visibility
from speciate.schema.problems import ProblemSummary
from speciate.schema.unlocks import MatrixCell
from speciate.storage.cursors import every

router = APIRouter(include_in_schema=False, prefix="/unlocks")

MAX_ROWS: Final = 300
MAX_COLUMNS: Final = 16
_KINDS: Final = ("only-a", "only-b", "both", "neither", "not-tried")
_Text = Annotated[str, Query(max_length=500)]
Cells = Mapping[tuple[UUID, tuple[UUID, UUID | None]], MatrixCell]
"""Cells of the matrix by problem and pair."""


@dataclass(frozen=True)
class UnlockRow:
    """A row of the matrix.

    Attributes:
        problem: The problem version.
        cells: One per column; None if the pair never ran on the problem.
        kind: Which of the two compared pairs unlocked the problem: ``only-a``, ``only-b``, ``both`` or ``neither``;
            ``not-tried`` if one of them never ran on it; empty without a comparison.
    """

    problem: ProblemSummary
    cells: tuple[MatrixCell | None, ...]
    kind: str

    @property
    def unlocked(self) -> int:
        return sum(1 for cell in self.cells if cell is not None and cell.unlocked)


@dataclass(frozen=True)
class UnlockMatrix:
    """The whole matrix."""

    pairs: tuple[PolicyPair, ...]
    hidden: int
    rows: tuple[UnlockRow, ...]
    a: PolicyPair | None
    b: PolicyPair | None
    counts: dict[str, int]
    names: tuple[str, ...]


@router.get("")
def show_matrix(
    request: Request, dashboard: DashboardDep, a: _Text = "", b: _Text = "", problems: _Text = "", show: _Text = ""
) -> Response:
    """Show the matrix; ``a`` and ``b`` name two pairs, ``problems`` a problem set, ``show`` a kind of rows."""
    matrix = _matrix(dashboard, a, b, problems, MAX_COLUMNS)
    rows = [row for row in matrix.rows if show not in _KINDS or row.kind == show]
    context: dict[str, Any] = {
        "matrix": matrix,
        "rows": rows[:MAX_ROWS],
        "left_out": max(0, len(rows) - MAX_ROWS),
        "filters": {"a": a, "b": b, "problems": problems, "show": show},
        "kinds": _KINDS,
        "sets": [problem_set.slug for problem_set in dashboard.stores.catalog.problem_sets(limit=100).items],
        "csv": address("/unlocks/matrix.csv", a=a, b=b, problems=problems),
        "query": address("", a=a, b=b, problems=problems),
    }
    return page(request, "unlocks.html", **context)


@router.get("/matrix.csv")
def get_matrix(dashboard: DashboardDep, a: _Text = "", b: _Text = "", problems: _Text = "") -> Response:
    """Send the matrix with all columns as CSV, each cell as unlocked/runs."""
    matrix = _matrix(dashboard, a, b, problems, None)
    columns = ["problem", *(pair.name for pair in matrix.pairs), "compared"]
    rows = [
        [
            f"{row.problem.slug}@{row.problem.version}",
            *("" if cell is None else f"{cell.unlocked}/{cell.runs}" for cell in row.cells),
            row.kind,
        ]
        for row in matrix.rows
    ]
    return download(Table(tuple(columns), rows), "unlocks")


def _matrix(dashboard: DashboardContext, a: str, b: str, problems: str, most: int | None) -> UnlockMatrix:
    catalog = dashboard.stores.catalog
    first, second = parse_pair(catalog, a) if a else None, parse_pair(catalog, b) if b else None
    cells = dashboard.overview.matrix()
    pairs_by_key = listed_pairs(catalog, cells)
    pairs = _columns(pairs_by_key, cells, [pair for pair in (first, second) if pair])
    columns = pairs[:most]
    listed = catalog.problem_set(problems).problems if problems else _all_problems(dashboard, cells)
    by_key = {(cell.problem_id, cell.pair): cell for cell in cells}
    rows = [_row(problem, by_key, columns, first, second) for problem in listed]
    rows.sort(key=lambda row: (-row.unlocked, row.problem.slug))
    kinds = Counter(row.kind for row in rows)
    names = tuple(pair.name for pair in pairs_by_key.values())
    counts = {kind: kinds[kind] for kind in _KINDS}
    return UnlockMatrix(columns, len(pairs) - len(columns), tuple(rows), first, second, counts, names)


def _row(
    problem: ProblemSummary,
    cells_by_key: Cells,
    columns: Sequence[PolicyPair],
    a: PolicyPair | None,
    b: PolicyPair | None,
) -> UnlockRow:
    cells = tuple(cells_by_key.get((problem.id, pair.key)) for pair in columns)
    return UnlockRow(problem, cells, _kind(cells_by_key, problem.id, a, b) if a and b else "")


def _columns(
    pairs_by_key: Mapping[tuple[UUID, UUID | None], PolicyPair],
    cells: Sequence[MatrixCell],
    chosen: Sequence[PolicyPair],
) -> tuple[PolicyPair, ...]:
    """Return the pairs with runs: the chosen ones first, the others by problems unlocked."""
    unlocked: Counter[tuple[UUID, UUID | None]] = Counter()
    for cell in cells:
        unlocked[cell.pair] += cell.unlocked > 0
    keys = {pair.key for pair in chosen}
    others = [pair for key, pair in pairs_by_key.items() if key in unlocked and key not in keys]
    others.sort(key=lambda pair: -unlocked[pair.key])
    return (*chosen, *others)


def _all_problems(dashboard: DashboardContext, cells: Sequence[MatrixCell]) -> list[ProblemSummary]:
    tried = {cell.problem_id for cell in cells}
    listed = every(partial(dashboard.stores.catalog.problems, visibility=Visibility.ALL))
    return [problem for problem in listed if problem.id in tried]


def _kind(cells: Cells, problem: UUID, a: PolicyPair, b: PolicyPair) -> str:
    in_a, in_b = (cells.get((problem, pair.key)) for pair in (a, b))
    # A pair without a run on the problem did not fail to unlock it.
    if in_a is None or in_b is None:
        return "not-tried"
    by_a, by_b = in_a.unlocked > 0, in_b.unlocked > 0
    return "both" if by_a and by_b else "only-a" if by_a else "only-b" if by_b else "neither"
