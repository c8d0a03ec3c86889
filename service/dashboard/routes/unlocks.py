"""The unlock matrix: problems × policies, and what one policy unlocks that another does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.charts import Table, download
from service.dashboard.deck import Deck, DeckDep
from service.dashboard.pages import address, page
from speciate.ports.records.policies import PolicyVersion
from speciate.ports.records.problems import ProblemSummary
from speciate.ports.records.unlocks import MatrixCell

router = APIRouter(include_in_schema=False, prefix="/unlocks")

MOST_ROWS: Final = 300
MOST_POLICIES: Final = 16
_KINDS: Final = ("only-a", "only-b", "both", "neither", "not-tried")
_Text = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class Row:
    """A problem of the matrix.

    Attributes:
        problem: The problem version.
        cells: What each policy did on it, None where it never tried.
        kind: ``only-a``, ``only-b``, ``both`` or ``neither`` of the two that are compared, ``not-tried`` where one of
            them never was; empty without two.
    """

    problem: ProblemSummary
    cells: tuple[MatrixCell | None, ...]
    kind: str

    @property
    def unlocked(self) -> int:
        """How many policies unlocked it."""
        return sum(1 for cell in self.cells if cell is not None and cell.unlocked)


@dataclass(frozen=True)
class Matrix:
    """The whole matrix.

    Attributes:
        policies: The columns.
        rows: The problems, those that most policies unlock first.
        a: The policy that is compared, if two are.
        b: The one it is compared with.
        counts: Problems of each kind.
    """

    policies: tuple[PolicyVersion, ...]
    rows: tuple[Row, ...]
    a: PolicyVersion | None
    b: PolicyVersion | None
    counts: dict[str, int]


@router.get("")
def show_matrix(
    request: Request, deck: DeckDep, a: _Text = "", b: _Text = "", problems: _Text = "", show: _Text = ""
) -> Response:
    """Show the matrix; ``a`` and ``b`` name policies to compare, ``problems`` a set, ``show`` a kind of rows."""
    matrix = _matrix(deck, a, b, problems)
    rows = [row for row in matrix.rows if show not in _KINDS or row.kind == show]
    context: dict[str, Any] = {
        "matrix": matrix,
        "rows": rows[:MOST_ROWS],
        "left_out": max(0, len(rows) - MOST_ROWS),
        "given": {"a": a, "b": b, "problems": problems, "show": show},
        "kinds": _KINDS,
        "names": _names(deck),
        "sets": [found.slug for found in deck.plane.catalog.problem_sets(limit=100).items],
        "csv": address("/unlocks/matrix.csv", a=a, b=b, problems=problems),
        "query": address("", a=a, b=b, problems=problems),
    }
    return page(request, "unlocks.html", **context)


@router.get("/matrix.csv")
def get_matrix(deck: DeckDep, a: _Text = "", b: _Text = "", problems: _Text = "") -> Response:
    """Send the whole matrix: runs that unlocked each problem, of how many."""
    matrix = _matrix(deck, a, b, problems)
    columns = ["problem", *(_name(policy) for policy in matrix.policies), "compared"]
    rows = [
        [
            f"{row.problem.slug}@{row.problem.version}",
            *("" if cell is None else f"{cell.unlocked}/{cell.runs}" for cell in row.cells),
            row.kind,
        ]
        for row in matrix.rows
    ]
    return download(Table(tuple(columns), rows), "unlocks")


def _matrix(deck: Deck, a: str, b: str, problems: str) -> Matrix:
    catalog = deck.plane.catalog
    first = catalog.policy(a) if a else None
    second = catalog.policy(b) if b else None
    cells = deck.overview.matrix()
    policies = _columns(catalog.policies(limit=500).items, cells, [p for p in (first, second) if p])
    wanted = catalog.problem_set(problems).problems if problems else _all_problems(deck, cells)
    held = {(cell.problem_id, cell.policy_id): cell for cell in cells}
    rows = []
    for problem in wanted:
        found = tuple(held.get((problem.id, policy.id)) for policy in policies)
        rows.append(Row(problem, found, _kind(held, problem.id, first, second)))
    rows.sort(key=lambda row: (-row.unlocked, row.problem.slug))
    counts = {kind: sum(1 for row in rows if row.kind == kind) for kind in _KINDS}
    return Matrix(policies, tuple(rows), first, second, counts)


def _columns(
    known: Sequence[PolicyVersion], cells: Sequence[MatrixCell], chosen: Sequence[PolicyVersion]
) -> tuple[PolicyVersion, ...]:
    """Return the policies that tried something, the chosen ones first, then by what they unlocked."""
    unlocked: dict[UUID, int] = {}
    for cell in cells:
        unlocked[cell.policy_id] = unlocked.get(cell.policy_id, 0) + (cell.unlocked > 0)
    ids = {policy.id for policy in chosen}
    others = [policy for policy in known if policy.id in unlocked and policy.id not in ids]
    others.sort(key=lambda policy: -unlocked[policy.id])
    return (*chosen, *others)[:MOST_POLICIES]


def _all_problems(deck: Deck, cells: Sequence[MatrixCell]) -> list[ProblemSummary]:
    tried = {cell.problem_id for cell in cells}
    found: list[ProblemSummary] = []
    cursor = None
    while True:
        read = deck.plane.catalog.problems(limit=500, cursor=cursor)
        found += [problem for problem in read.items if problem.id in tried]
        cursor = read.next_cursor
        if cursor is None:
            return found


def _kind(
    held: dict[tuple[UUID, UUID], MatrixCell], problem: UUID, a: PolicyVersion | None, b: PolicyVersion | None
) -> str:
    if a is None or b is None:
        return ""
    in_a, in_b = (held.get((problem, policy.id)) for policy in (a, b))
    # Who never tried a problem has not failed to unlock it.
    if in_a is None or in_b is None:
        return "not-tried"
    by_a, by_b = in_a.unlocked > 0, in_b.unlocked > 0
    return "both" if by_a and by_b else "only-a" if by_a else "only-b" if by_b else "neither"


def _names(deck: Deck) -> list[str]:
    return [_name(policy) for policy in deck.plane.catalog.policies(limit=500).items]


def _name(policy: PolicyVersion) -> str:
    return f"{policy.definition.slug}@{policy.version}"
