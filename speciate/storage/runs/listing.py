"""Translate orders of the list of runs into SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.run import RunState
from speciate.schema.runs import RunOrder
from speciate.storage import cursors
from speciate.storage.runs.progress import RUNNING_SECONDS

_STATES: Final = (*(state for state in RunState if not state.ended), *(state for state in RunState if state.ended))
# The best candidate meets the unlock target exactly if some candidate has an unlock claim that was not refuted.
BEST_UNLOCKS: Final = (
    "EXISTS (SELECT FROM claims k WHERE k.run_id = g.run_id AND k.unlock AND k.state <> 'refuted')::int"
)
_HARDEST: Final = "length(ltrim(CAST(g.best_targets AS bit(64))::text, '0'))"
_KEYS: Final[dict[RunOrder, tuple[str, type]]] = {
    RunOrder.STATE: (f"array_position(ARRAY{[state.value for state in _STATES]}, g.state)", int),
    RunOrder.PROBLEM: ("p.slug", str),
    RunOrder.POLICY: ("a.slug", str),
    RunOrder.BEST: (f"(65 * 64 * {BEST_UNLOCKS} + 64 * bit_count(CAST(g.best_targets AS bit(64))) + {_HARDEST})", int),
    RunOrder.DURATION: (f"({RUNNING_SECONDS})", float),
    RunOrder.EVALUATIONS: ("g.evaluations", int),
    RunOrder.TOKENS: ("g.tokens", int),
    RunOrder.COST: ("g.cost", float),
}
"""SQL and type of each sort key, over the tables of ``_TABLES``. ``started`` sorts by id."""

_TABLES: Final = (
    "runs r JOIN run_progress g ON g.run_id = r.id JOIN problems p ON p.id = r.problem_id"
    " JOIN policies a ON a.id = r.policy_id"
)
RUN_TABLES: Final = (
    f"({_TABLES} LEFT JOIN policies b ON b.id = r.mutator_id"
    " LEFT JOIN candidates c ON c.run_id = r.id AND c.number = g.best_number)"
)
"""The tables of ``_TABLES`` with the mutator (b) and the best candidate (c)."""


@dataclass(frozen=True, slots=True)
class RunListing:
    """Parts of the SQL statements for a page of runs: the first chooses ids, the second reads them.

    Attributes:
        key: Expression of the sort key.
        direction: ASC or DESC.
        after: Condition that skips the previous pages; empty on the first page.
        binds: Values of the condition.
        name: Name of the order, which its cursors carry; empty for orders by id.
    """

    key: str
    direction: str
    after: str
    binds: dict[str, Any]
    name: str

    def query(self, columns: str, where: str) -> str:
        """Return the statement that reads ``columns`` of the runs that meet ``where``.

        Only the chosen runs are joined with their best candidates and the definitions of their problems.
        """
        conditions = " AND ".join(filter(None, (where, self.after)))
        return (
            f"WITH chosen AS (SELECT r.id AS chosen_id, {self.key} AS sort_key FROM {_TABLES}"
            f" WHERE {conditions or 'true'} ORDER BY sort_key {self.direction}, r.id DESC LIMIT :limit)"
            f" {columns}, sort_key FROM chosen JOIN {RUN_TABLES} ON r.id = chosen_id"
            f" ORDER BY sort_key {self.direction}, r.id DESC"
        )

    def cursor(self, row: sa.Row[Any]) -> Sequence[Any]:
        """Return the cursor key of a row with ``id`` and ``sort_key``."""
        return [self.name, row.sort_key, str(row.id)] if self.name else cursors.by_id(row)


def run_page(order: RunOrder, cursor: str | None, *, reverse: bool) -> RunListing:
    """Return the query for the page that starts at a cursor. Runs with equal keys are listed newest first.

    Raises:
        InvalidInputError: The cursor belongs to another list.
    """
    ascending = order.ascending is not reverse
    direction, beyond = ("ASC", ">") if ascending else ("DESC", "<")
    if order is RunOrder.STARTED:
        binds: dict[str, Any] = {} if cursor is None else {"after": cursors.decode_id(cursor)}
        return RunListing("r.id", direction, f"r.id {beyond} :after" if binds else "", binds, "")
    name = f"-{order.value}" if reverse else order.value
    key, kind = _KEYS[order]
    if cursor is None:
        return RunListing(key, direction, "", {}, name)
    listed, last, run = cursors.decode(cursor, [str, kind, UUID])
    if listed != name:
        raise cursors.refusal()
    after = f"({key} {beyond} :last OR {key} = :last AND r.id < :after)"
    return RunListing(key, direction, after, {"last": last, "after": run}, name)
