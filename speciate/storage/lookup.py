"""Lookup by name, and values that tables hold as JSON."""

from typing import Any, Final, TypeVar
from uuid import UUID

import sqlalchemy as sa
from pydantic import ValidationError

from speciate import __version__
from speciate.domain.errors import NewerRecordError, NotFoundError, invalid_field
from speciate.domain.suggestions import did_you_mean
from speciate.domain.values import Value, storable
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID

_MOST_COMPARED: Final = 1000

T = TypeVar("T")


def named(table: sa.Table, name: str | UUID, project: UUID | None) -> sa.ColumnElement[bool]:
    """Return the condition that selects a row by id or slug in a project; a malformed name selects none."""
    mine = table.c.project_id == (project or DEFAULT_PROJECT_ID)
    by_slug = sa.and_(table.c.slug == storable(str(name)), mine)
    try:
        by_id = table.c.id == (name if isinstance(name, UUID) else UUID(name))
    except ValueError:
        return by_slug
    by_id = by_id if project is None else sa.and_(by_id, mine)
    if isinstance(name, UUID):
        return by_id
    others = table.alias("others").c
    taken = sa.exists().where(others.id == UUID(name), *([] if project is None else [others.project_id == project]))
    return sa.or_(by_id, sa.and_(by_slug, ~taken))  # a slug may look like an id, which goes first


def require_page_name(slug: str, *keywords: str) -> None:
    """Raise ``InvalidInputError`` for the one name whose page the dashboard's form hides, and for ``keywords``."""
    if slug in ("new", *keywords):
        use = "a keyword of the filter of runs" if slug in keywords else "the address of a form"
        raise invalid_field("The name", "slug", f"{slug!r} is {use}: choose another name")


def not_found(
    connection: sa.Connection, table: sa.Table, what: str, name: str | UUID, project: UUID | None
) -> NotFoundError:
    """Return the error for a name without a row; it suggests the nearest visible names of the project."""
    slug, _, _ = str(name).partition("@")
    hidden = [table.c[column].is_(None) for column in ("archived_at", "deleted_at") if column in table.c]
    mine = table.c.project_id == (project or DEFAULT_PROJECT_ID)
    newest = sa.select(table.c.slug).where(mine, *hidden).order_by(table.c.id.desc()).limit(_MOST_COMPARED)
    names = dict.fromkeys(connection.execute(newest).scalars())
    remedy = f"There are other versions of {slug!r}." if slug in names else did_you_mean(slug, names)
    return NotFoundError(f"there is no {what} {str(name)[:200]!r}.", remedy=remedy)


def require_row(row: T | None, what: str) -> T:
    """Return the row of a query, or raise ``NotFoundError`` if there is none."""
    if row is None:
        raise NotFoundError(f"there is no {what}.")
    return row


def attested_sql(table: str) -> str:
    """SQL: true if external evaluators submit the rewards of a problem; ``table`` is its alias, with a dot."""
    stage = f"coalesce({table}definition -> 'stages' -> -1 ->> 'evaluation', '')"
    return f"'external' IN (coalesce({table}definition ->> 'evaluation', ''), {stage})"


V = TypeVar("V", bound=Value)


def read_stored(kind: type[V], values: Any) -> V:
    """Return a value that ``Value.stored_json`` wrote; raises ``NewerRecordError`` if a newer version did."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # The message names fields, not their values, which are users' texts.
        places = ", ".join(
            ".".join(map(str, field_error["loc"])) or "the whole value" for field_error in error.errors()[:3]
        )
        raise NewerRecordError(
            f"a {kind.__name__} in the database cannot be read by this process of version {__version__}: {places}.",
            remedy="A newer version wrote it: restart this process with that version.",
        ) from None
