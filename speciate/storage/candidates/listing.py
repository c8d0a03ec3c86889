"""Which candidates of a run are listed, and in which order: what was asked for, as SQL (ADR 29)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import CandidateStatus
from speciate.domain.errors import FieldError, InvalidInputError, RuleError
from speciate.domain.objective import Direction
from speciate.domain.policy import PolicyRole
from speciate.domain.rule import parse_rule
from speciate.storage import cursors
from speciate.storage.runs.context import ScoringSchema

ANY_TARGET: Final = "any"
"""Asks for whatever meets a target; a target that is called so takes the name."""

BY_NUMBER: Final = "number"
BY_SCALAR: Final = "scalar"
"""What there is to sort by besides rewards; a reward that is called so takes the name."""

_MOST_NAMES: Final = 12
_SQL: Final = {sign: sign for sign in (">=", "<=", ">", "<", "(", ")")} | {
    "==": "=",
    "!=": "<>",
    "and": "AND",
    "or": "OR",
    "not": "NOT",
}


@dataclass(frozen=True, slots=True)
class CandidateFilter:
    """Which candidates, and in which order; what is None is left open.

    Attributes:
        status: Their outcome.
        island: Where they were made.
        role: What was asked for them.
        policy_id: Who was asked for them.
        target: Name of a target that their rewards meet, confirmed or not, or ``any``.
        rule: What their rewards meet, in the grammar of ``speciate.domain.rule``; who failed has none and meets none.
        elite: Whether they must hold a cell of the archive now.
        sort: Name of a reward, or ``scalar``: the best come first, among equals the earliest, and last those that have
            none. ``number`` and None: the newest come first.
    """

    status: CandidateStatus | None = None
    island: int | None = None
    role: PolicyRole | None = None
    policy_id: UUID | None = None
    target: str | None = None
    rule: str | None = None
    elite: bool = False
    sort: str | None = None


NO_FILTER: Final = CandidateFilter()


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """A page of a list as parts of a statement on ``candidates``.

    Attributes:
        where: Conditions besides that on the run, each with AND before it.
        order: What follows ORDER BY.
        binds: Values of the conditions.
        sort: What it is sorted by, None for numbers.
        best: What is compared then, the larger the better; NULL for numbers.
    """

    where: str
    order: str
    binds: dict[str, Any]
    sort: str | None
    best: str

    def cursor(self, row: sa.Row[Any]) -> Sequence[Any]:
        """Return where a page ends; ``row`` has ``number`` and, as ``best``, what is compared."""
        return [row.number] if self.sort is None else [self.sort, row.best, row.number]


def listing(wanted: CandidateFilter, measures: ScoringSchema, cursor: str | None) -> CandidateQuery:
    """Return the page of a list that begins at a cursor.

    Raises:
        InvalidInputError: The order, the target or the rule names what the problem does not have, or the cursor is one
            of another list.
    """
    conditions, binds = _conditions(wanted, measures)
    best = _best(wanted.sort, measures)
    if best is None:
        order = "number DESC"
        if cursor is not None:
            conditions.append("number < :before")
            binds["before"] = cursors.decode(cursor, [int])[0]
    else:
        order = f"{best} DESC, number"
        if cursor is not None:
            sort, least, number = cursors.decode(cursor, [str, float, int])
            if sort != wanted.sort:
                raise cursors.refusal()
            conditions.append(f"({best}, -number) < (:least, :before)")
            binds |= {"least": least, "before": -number}
    where = "".join(f" AND {condition}" for condition in conditions)
    return CandidateQuery(where, order, binds, None if best is None else wanted.sort, best or "NULL")


def _conditions(wanted: CandidateFilter, measures: ScoringSchema) -> tuple[list[str], dict[str, Any]]:
    equal = {
        "status": wanted.status and wanted.status.value,
        "island": wanted.island,
        "role": wanted.role and wanted.role.value,
        "policy_id": wanted.policy_id,
    }
    binds: dict[str, Any] = {name: value for name, value in equal.items() if value is not None}
    conditions = [f"{name} = :{name}" for name in binds]
    if wanted.target is not None:
        # There is an index of those that meet some target.
        conditions.append("targets <> 0 AND targets & :met <> 0")
        binds["met"] = _mask(wanted.target, measures.targets)
    if wanted.elite:
        conditions.append("number IN (SELECT e.number FROM elites e WHERE e.run_id = :run_id)")
    if wanted.rule is not None:
        conditions.append(f"({_rule(wanted.rule, measures.space.names)})")
    return conditions, binds


def _best(sort: str | None, measures: ScoringSchema) -> str | None:
    names = measures.space.names
    # Rewards are finite: who has none comes after all that have one.
    if sort in names:
        place = names.index(sort)
        sign = "-" if measures.space.objectives[place].direction is Direction.MINIMIZE else ""
        return f"coalesce({sign}rewards[{place + 1}], '-infinity')"
    if sort is None or sort == BY_NUMBER:
        return None
    if sort == BY_SCALAR and measures.weighted:
        return "coalesce(scalar, '-infinity')"
    raise _unknown("sort", sort, [BY_NUMBER, *[BY_SCALAR] * measures.weighted, *names])


def _mask(target: str, names: tuple[str, ...]) -> int:
    if target in names:
        return 1 << names.index(target)
    if target == ANY_TARGET:
        return (1 << len(names)) - 1
    raise _unknown("target", target, [ANY_TARGET, *names])


def _rule(text: str, names: tuple[str, ...]) -> str:
    """Return a rule as SQL, which has the same precedence; of its text nothing but known words gets there."""
    try:
        rule = parse_rule(text, names)
    except RuleError as error:
        flaw = FieldError(str(error), where="rule", column=error.column)
        raise InvalidInputError(f"The rule cannot be read: {error}", flaws=(flaw,)) from None
    places = {name: f"rewards[{place}]" for place, name in enumerate(names, 1)}
    return " ".join(places.get(token) or _SQL.get(token) or f"float8 '{float(token)!r}'" for token in rule.tokens)


def _unknown(where: str, given: str, known: Sequence[str]) -> InvalidInputError:
    more = ", …" if len(known) > _MOST_NAMES else ""
    flaw = FieldError(f"is {given[:80]!r}: expected one of {', '.join(known[:_MOST_NAMES])}{more}", where=where)
    return InvalidInputError(f"The list cannot be made: {flaw}", flaws=(flaw,))
