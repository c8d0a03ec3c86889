"""Translate filters and orders of candidate lists into SQL (ADR 29)."""

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
from speciate.domain.suggestions import did_you_mean
from speciate.storage import cursors
from speciate.storage.runs.context import ScoringSchema

ANY_TARGET: Final = "any"
"""Filter value for candidates that meet any target, unless a target has this name."""

BY_NUMBER: Final = "number"
BY_SCALAR: Final = "scalar"
"""Orders besides rewards, unless a reward has this name."""

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
    """Filter and order of a list; None does not filter."""

    status: CandidateStatus | None = None
    island: int | None = None
    role: PolicyRole | None = None
    policy_id: UUID | None = None
    target: str | None = None
    """Name of a target that the rewards meet, without refuted ones, or ``any``."""
    rule: str | None = None
    """Rule that the rewards meet, see ``speciate.domain.rule``; failed candidates meet none."""
    elite: bool = False
    """True to list current elites only."""
    sort: str | None = None
    """Name of a reward, or ``scalar``: best first, then earliest first, candidates without a value last. ``number`` or
    None: newest first."""


NO_FILTER: Final = CandidateFilter()


@dataclass(frozen=True, slots=True)
class CandidateQuery:
    """Parts of the SQL statement for a page of a list."""

    where: str
    """Conditions besides the run, each preceded by AND."""
    order: str
    """Columns of ORDER BY."""
    binds: dict[str, Any]
    sort: str | None
    """Sort key, None for numbers."""
    best: str
    """SQL expression of the sort key, higher is better; NULL for numbers."""

    def cursor(self, row: sa.Row[Any]) -> Sequence[Any]:
        """Return the cursor key of a row with ``number`` and ``best``."""
        return [row.number] if self.sort is None else [self.sort, row.best, row.number]


def listing(filters: CandidateFilter, scoring: ScoringSchema, cursor: str | None) -> CandidateQuery:
    """Return the query for the page that starts at a cursor."""
    conditions, binds = _conditions(filters, scoring)
    best = _best(filters.sort, scoring)
    if best is None:
        order = "number DESC"
        if cursor is not None:
            conditions.append("number < :before")
            binds["before"] = cursors.decode(cursor, [int])[0]
    else:
        order = f"{best} DESC, number"
        if cursor is not None:
            sort, least, number = cursors.decode(cursor, [str, float, int])
            if sort != filters.sort:
                raise cursors.refusal()
            conditions.append(f"({best}, -number) < (:least, :before)")
            binds |= {"least": least, "before": -number}
    where = "".join(f" AND {condition}" for condition in conditions)
    return CandidateQuery(where, order, binds, None if best is None else filters.sort, best or "NULL")


def _conditions(filters: CandidateFilter, scoring: ScoringSchema) -> tuple[list[str], dict[str, Any]]:
    equal = {
        "status": filters.status and filters.status.value,
        "island": filters.island,
        "role": filters.role and filters.role.value,
        "policy_id": filters.policy_id,
    }
    binds: dict[str, Any] = {name: value for name, value in equal.items() if value is not None}
    conditions = [f"{name} = :{name}" for name in binds]
    if filters.target is not None:
        # The partial index requires targets <> 0.
        conditions.append("targets <> 0 AND targets & ~refuted & :met <> 0")
        binds["met"] = _mask(filters.target, scoring.targets)
    if filters.elite:
        conditions.append("number IN (SELECT e.number FROM elites e WHERE e.run_id = :run_id)")
    if filters.rule is not None:
        conditions.append(f"({_rule(filters.rule, scoring.space.names)})")
    return conditions, binds


def _best(sort: str | None, scoring: ScoringSchema) -> str | None:
    names = scoring.space.names
    # Rewards are finite, so that candidates without one come last.
    if sort in names:
        place = names.index(sort)
        sign = "-" if scoring.space.objectives[place].direction is Direction.MINIMIZE else ""
        return f"coalesce({sign}rewards[{place + 1}], '-infinity')"
    if sort is None or sort == BY_NUMBER:
        return None
    if sort == BY_SCALAR and scoring.weighted:
        return "coalesce(scalar, '-infinity')"
    raise _unknown("sort", sort, [BY_NUMBER, *[BY_SCALAR] * scoring.weighted, *names])


def _mask(target: str, names: tuple[str, ...]) -> int:
    if target in names:
        return 1 << names.index(target)
    if target == ANY_TARGET:
        return (1 << len(names)) - 1
    raise _unknown("target", target, [ANY_TARGET, *names])


def _rule(text: str, names: tuple[str, ...]) -> str:
    """Return a rule as SQL, which has the same precedence; only known words of its text enter the SQL."""
    try:
        rule = parse_rule(text, names)
    except RuleError as error:
        field_error = FieldError(str(error), where="rule", column=error.column)
        raise InvalidInputError(f"The rule cannot be read: {error}", field_errors=(field_error,)) from None
    places = {name: f"rewards[{place}]" for place, name in enumerate(names, 1)}
    return " ".join(places.get(token) or _SQL.get(token) or f"float8 '{float(token)!r}'" for token in rule.tokens)


def _unknown(where: str, name: str, names: Sequence[str]) -> InvalidInputError:
    more = ", …" if len(names) > _MOST_NAMES else ""
    field_error = FieldError(f"is {name[:80]!r}: expected one of {', '.join(names[:_MOST_NAMES])}{more}", where=where)
    message = f"The list cannot be made: {field_error}."
    return InvalidInputError(message, field_errors=(field_error,), remedy=did_you_mean(name, names))
