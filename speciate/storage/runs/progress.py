"""Lock, load and save the progress of a run, its only mutable row."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from speciate.domain.errors import NotFoundError
from speciate.domain.run import RunState
from speciate.ports.work import Lease
from speciate.runs.progress import RunProgress

_DOCUMENTS: Final = ("failures", "reasons", "recent", "arms", "advice", "streaks", "diagnosis", "learning")
_FIELDS: Final = tuple(name for name in RunProgress.model_fields if name not in {"state", "seconds"})
"""Fields whose column holds the value as it is. ``seconds`` is computed from the clock."""

RUNNING_SECONDS: Final = (
    "seconds + CASE WHEN state = 'running' THEN extract(epoch FROM clock_timestamp() - running_since) ELSE 0 END"
)
"""SQL: running seconds until now, by the database's clock, which all workers share."""

_LOCKED: Final = (
    f"SELECT run_id, state, {', '.join(_FIELDS)}, {RUNNING_SECONDS} AS seconds_now, clock_timestamp() AS now"
    " FROM run_progress WHERE run_id = :run_id FOR UPDATE"
)
# Named columns, so that SQLAlchemy does not analyze the result in every transaction.
_COLUMNS: Final[list[sa.ColumnClause[Any]]] = [
    sa.column(name) for name in ("run_id", "state", *_FIELDS, "seconds_now", "now")
]
_LOCK = sa.text(_LOCKED).columns(*_COLUMNS)
# Both locks in one round trip and in order: the work row is found through the progress row, which is locked first. The
# payload is dropped, because the candidates table holds the programs.
_FINISH = sa.text(
    f"WITH run AS MATERIALIZED ({_LOCKED}), finished AS (UPDATE work SET state = 'done', lease_token = NULL,"
    " lease_until = NULL, payload = '{}'::jsonb FROM run WHERE work.id = :id AND work.run_id = run.run_id"
    " AND work.lease_token = :token AND work.state = 'leased'"
    " RETURNING work.reserved_evaluations AS unit_evaluations, work.reserved_tokens AS unit_tokens)"
    " SELECT run.*, finished.* FROM run LEFT JOIN finished ON true"
).columns(*_COLUMNS, sa.column("unit_evaluations"), sa.column("unit_tokens"))
SAVE: Final = (
    "UPDATE run_progress SET state = :state, seconds = :seconds, running_since = :running_since,"
    " started_at = coalesce(started_at, :started_at), finished_at = :finished_at, "
    + ", ".join(f"{name} = :{name}" for name in _FIELDS)
    + " WHERE run_id = :run_id"
)
"""SQL: saves the values of ``LockedProgress.values``."""

SAVED_DOCUMENTS: Final = tuple(sa.bindparam(name, type_=JSONB) for name in _DOCUMENTS)
_SAVE = sa.text(SAVE).bindparams(*SAVED_DOCUMENTS)


@dataclass(slots=True)
class LockedProgress:
    """The progress of a run, locked until the transaction ends.

    Attributes:
        run_id: The run.
        progress: Its counters; change them, then call ``save``.
        now: The database's clock when the lock was taken.
    """

    run_id: UUID
    progress: RunProgress
    now: datetime

    def save(self, connection: sa.Connection) -> None:
        """Save the counters."""
        connection.execute(_SAVE, self.values())

    def values(self) -> dict[str, Any]:
        """Return the parameters of ``SAVE``."""
        p = self.progress
        running = self.now if p.state is RunState.RUNNING else None
        return {name: getattr(p, name) for name in _FIELDS} | {
            "run_id": self.run_id,
            "state": p.state.value,
            "seconds": p.seconds,
            # The clock restarts at every commit, so that pauses do not count.
            "running_since": running,
            "started_at": running,
            "finished_at": self.now if p.state.ended else None,
        }


def lock_progress(connection: sa.Connection, run_id: UUID) -> LockedProgress:
    """Lock a run's progress. Every transaction takes this lock before it locks work, which prevents deadlocks.

    Raises:
        NotFoundError: No such run exists.
    """
    row = connection.execute(_LOCK, {"run_id": run_id}).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"there is no run {run_id}.")
    return _loaded(run_id, row)


def finish_work(connection: sa.Connection, lease: Lease) -> tuple[LockedProgress, tuple[int, int]] | None:
    """Lock a run's progress and finish one of its work units.

    Returns:
        The progress, and the evaluations and tokens that the unit reserved; None if the lease is lost.

    Raises:
        NotFoundError: No such run exists.
    """
    keys = {"run_id": lease.run_id, "id": lease.work_id, "token": lease.token}
    row = connection.execute(_FINISH, keys).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"there is no run {lease.run_id}.")
    if row["unit_evaluations"] is None:
        return None
    return _loaded(lease.run_id, row), (row["unit_evaluations"], row["unit_tokens"])


def _loaded(run_id: UUID, row: sa.RowMapping) -> LockedProgress:
    stored = {name: row[name] for name in _FIELDS}
    progress = RunProgress(state=row["state"], seconds=row["seconds_now"], **stored)
    return LockedProgress(run_id, progress, row["now"])
