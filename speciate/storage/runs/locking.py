"""Lock, load and save the progress of a run, its only mutable row."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.run import RunState
from speciate.ports.work import Lease
from speciate.runs.progress import RunChange, RunProgress
from speciate.storage.lookup import require_row
from speciate.storage.statements import Statements

_DOCUMENTS: Final = (
    "failures", "reasons", "recent", "arms", "advice", "streaks", "diagnosis", "learning", "trials", "final",
)  # fmt: skip
_FIELDS: Final = tuple(name for name in RunProgress.model_fields if name not in {"state", "seconds"})
"""Fields whose column holds the value as it is. ``seconds`` is computed from the clock."""


def _assignment(name: str) -> str:
    return f"{name} = cast(:{name} AS jsonb)" if name in _DOCUMENTS else f"{name} = :{name}"


SQL = Statements(__file__, fields=", ".join(_FIELDS), assignments=", ".join(map(_assignment, _FIELDS)))
SAVE: Final = SQL.text("save")


@dataclass(slots=True, kw_only=True)
class LockedRun(RunChange):
    """A transaction on a run, whose progress is locked until it ends."""

    run_id: UUID
    now: datetime  # the database's clock when the lock was taken

    def save(self, connection: sa.Connection) -> None:
        connection.execute(SQL.save, self.values())

    def values(self) -> dict[str, Any]:
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


def lock_progress(connection: sa.Connection, run_id: UUID) -> LockedRun:
    """Lock a run's progress. Every transaction takes this lock before it locks work, which prevents deadlocks."""
    row = connection.execute(SQL.lock, {"run_id": run_id}).mappings().one_or_none()
    return _loaded(run_id, require_row(row, f"run {run_id}"))


def finish_work(connection: sa.Connection, lease: Lease) -> tuple[LockedRun, tuple[int, int]] | None:
    """Lock a run's progress and finish one of its work units; None if the lease is lost.

    The numbers are the evaluations and tokens that the unit reserved.
    """
    keys = {"run_id": lease.run_id, "id": lease.work_id, "token": lease.token}
    row = require_row(connection.execute(SQL.finish, keys).mappings().one_or_none(), f"run {lease.run_id}")
    if row["unit_evaluations"] is None:
        return None
    return _loaded(lease.run_id, row), (row["unit_evaluations"], row["unit_tokens"])


def _loaded(run_id: UUID, row: sa.RowMapping) -> LockedRun:
    progress = RunProgress(state=row["state"], seconds=row["seconds_now"], **{name: row[name] for name in _FIELDS})
    return LockedRun(progress=progress, run_id=run_id, now=row["now"])
