"""Read a run's population: elites, individuals by number, duplicates by text and syntax tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast
from uuid import UUID

import psycopg
import sqlalchemy as sa

from speciate.domain.candidate import Evaluation, Failure, FailureKind, Individual, Repeat
from speciate.domain.errors import UnavailableError
from speciate.ports.work import OUTPUT, CarriedOutput, Duplicate

EliteRow = tuple[int, tuple[str, int, float, tuple[float, ...]]]
"""``(island, (cell, number, fitness, raw rewards))``."""

_ELITES = sa.text("SELECT island, cell, number, fitness, rewards FROM elites WHERE run_id = :id")
# COPY streams, and its binary format needs no parsing.
_ELITES_COPY: Final = (
    "COPY (SELECT island, cell, number, fitness, rewards FROM elites WHERE run_id = %s) TO STDOUT (FORMAT binary)"
)
_ELITE_TYPES: Final = ("int4", "text", "int8", "float8", "float8[]")
_MEMBERS = sa.text(
    "SELECT number, program, rewards, failure, failure_reason, failure_detail, artifacts, island, parents,"
    " stopped_at, targets & ~refuted AS targets, refuted, repeats"
    " FROM candidates WHERE run_id = :id AND number = ANY(:numbers)"
)
_FAMILY = sa.text(
    "SELECT number, coalesce(parents[1], 0) AS parent, rewards FROM candidates WHERE run_id = :id ORDER BY number"
)
_LATEST = sa.text(
    "SELECT number, island, failure, failure_reason, failure_detail FROM candidates WHERE run_id = :id"
    " ORDER BY number DESC LIMIT :most"
)
_CARRIED = sa.text(
    f"SELECT number, artifacts->>'{OUTPUT}' AS output FROM candidates WHERE run_id = :id"
    f" AND artifacts->>'{OUTPUT}' IS NOT NULL AND number = CASE WHEN CAST(:to AS bigint) IS NULL"
    " THEN (SELECT best_number FROM run_progress WHERE run_id = :id)"
    " ELSE (SELECT carried_from FROM candidates WHERE run_id = :id AND number = :to) END"
)
# Programs are found by text or syntax tree, each through its own index.
_DUPLICATE = (
    "SELECT {name} AS name, number, rewards, failure, failure_reason, failure_detail, tier,"
    " targets & ~refuted AS targets, stopped_at,"
    " attested_by, environment, carried_from"
    " FROM candidates WHERE run_id = :id AND duplicate_of IS NULL AND {name} = ANY(:{name})"
)
_DUPLICATES = sa.text(
    f"{_DUPLICATE.format(name='program_hash')} UNION ALL {_DUPLICATE.format(name='shape')} ORDER BY number DESC"
)


def elite_rows(connection: sa.Connection, run_id: UUID) -> list[EliteRow]:
    """Return every elite of a run."""
    return [
        (row.island, (row.cell, row.number, row.fitness, tuple(row.rewards)))
        for row in connection.execute(_ELITES, {"id": run_id})
    ]


def stream_elites(connection: sa.Connection, run_id: UUID) -> Iterator[EliteRow]:
    """Stream the elites of a run, for archives of millions; ``connection`` is busy until the last one.

    Raises:
        UnavailableError: The connection is lost.
    """
    driver = cast("psycopg.Connection", connection.connection.driver_connection)
    try:
        with driver.cursor() as cursor, cursor.copy(_ELITES_COPY, (run_id,)) as copy:
            copy.set_types(_ELITE_TYPES)
            for island, cell, number, fitness, rewards in copy.rows():
                yield island, (cell, number, fitness, tuple(rewards))
    except psycopg.OperationalError as error:
        raise UnavailableError(f"PostgreSQL does not respond: {type(error).__name__}.") from error


def lineage_rows(connection: sa.Connection, run_id: UUID) -> list[tuple[int, int, Sequence[float] | None]]:
    """Return number, first parent (0 for none) and rewards of every candidate, ascending by number."""
    return [(row.number, row.parent, row.rewards) for row in connection.execute(_FAMILY, {"id": run_id})]


def members(connection: sa.Connection, run_id: UUID, numbers: Sequence[int]) -> dict[int, Individual]:
    """Return individuals by number."""
    if not numbers:
        return {}
    rows = connection.execute(_MEMBERS, {"id": run_id, "numbers": list(set(numbers))})
    return {
        row.number: Individual(
            number=row.number,
            program=row.program,
            rewards=None if row.rewards is None else tuple(row.rewards),
            failure=_failure(row),
            artifacts=row.artifacts,
            island=row.island,
            parents=tuple(row.parents),
            stopped_at=row.stopped_at,
            targets=row.targets,
            refuted=row.refuted,
            repeats=read_repeats(row.repeats),
        )
        for row in rows
    }


def read_repeats(stored: Sequence[Any] | None) -> tuple[Repeat, ...]:
    """Return what the column ``repeats`` holds."""
    return tuple(each if isinstance(each, str) else tuple(each) for each in stored or ())


def latest(connection: sa.Connection, run_id: UUID, most: int) -> list[tuple[int, int, Failure | None]]:
    """Return number, island and failure of the latest candidates, newest first."""
    return [
        (row.number, row.island, _failure(row)) for row in connection.execute(_LATEST, {"id": run_id, "most": most})
    ]


def carried(connection: sa.Connection, run_id: UUID, to: int | None) -> CarriedOutput | None:
    """Return the output that candidate ``to`` received, or that of the best candidate for a new one."""
    row = connection.execute(_CARRIED, {"id": run_id, "to": to}).one_or_none()
    return None if row is None else CarriedOutput(row.number, row.output)


def duplicates(
    connection: sa.Connection, run_id: UUID, hashes: Sequence[str], shapes: Sequence[str]
) -> dict[str, Duplicate]:
    """Return the earliest candidate for each hash and each shape, except rejected proposals."""
    if not hashes:
        return {}
    rows = connection.execute(
        _DUPLICATES, {"id": run_id, "program_hash": list(set(hashes)), "shape": list(set(shapes))}
    )
    # Newest first, so that the earliest of equal names is written last and stays.
    return {
        row.name: Duplicate(
            row.number,
            Evaluation(
                rewards=None if row.rewards is None else tuple(row.rewards),
                failure=failure,
                tier=row.tier,
                stopped_at=row.stopped_at,
                attested_by=row.attested_by or "",
                environment=row.environment or "",
                carried_from=row.carried_from,
            ),
            row.targets,
        )
        for row in rows
        if not ((failure := _failure(row)) and failure.repeatable)
    }


def _failure(row: sa.Row[tuple[object, ...]]) -> Failure | None:
    if row.failure is None:
        return None
    return Failure(FailureKind(row.failure), row.failure_reason or "", row.failure_detail or "")
