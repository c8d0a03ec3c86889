"""Share evaluation slots fairly: by project, then by run, and never all of them for evaluations that last long.

A message says that some unit is ready; the worker that receives it takes the unit of the run that has the fewest. The
unit that is passed over is taken with another message, since there are as many messages as ready units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.storage.database import Store, reading, with_retries

LONG_S: Final = 2.0
"""Seconds of an evaluation from which a run leaves the last free slot to others."""

_RECENT: Final = 8
_KINDS: Final = "w.kind IN ('evaluate', 'confirm')"
# The run with the fewest leased units of the project with the fewest; among equals the unit of the message, or else the
# one that has waited longest. Without rows the unit is no evaluation, or no longer ready.
_CHOOSE: Final = sa.text(
    "WITH held AS (SELECT w.run_id, r.project_id,"
    " sum(coalesce(cast(d.definition -> 'limits' ->> 'cores' AS integer), 1)) AS units"  # a slot for each core
    " FROM work w JOIN runs r ON r.id = w.run_id JOIN problems d ON d.id = r.problem_id"
    f" WHERE w.state = 'leased' AND {_KINDS} GROUP BY w.run_id, r.project_id),"
    " waiting AS (SELECT DISTINCT ON (w.run_id) w.id, w.run_id, r.project_id, w.dispatched_at FROM work w"
    " JOIN runs r ON r.id = w.run_id JOIN run_progress p ON p.run_id = w.run_id"
    f" WHERE w.state = 'ready' AND {_KINDS} AND w.dispatched_at IS NOT NULL AND p.state = 'running'"
    " ORDER BY w.run_id, w.id <> :id, w.dispatched_at)"
    " SELECT w.id, w.run_id, coalesce((SELECT units FROM held WHERE held.run_id = w.run_id), 0) AS of_run,"
    " (SELECT coalesce(sum(units), 0) FROM held) AS taken,"
    " EXISTS (SELECT FROM run_progress p WHERE p.state = 'running' AND p.run_id <> w.run_id"
    " AND p.run_id NOT IN (SELECT run_id FROM held)) AS others"
    " FROM waiting w ORDER BY"
    " coalesce((SELECT sum(units) FROM held WHERE held.project_id = w.project_id), 0),"
    " of_run, w.id <> :id, w.dispatched_at"
)
_RUN: Final = sa.text("SELECT run_id FROM work WHERE id = :id AND state = 'ready'")
_LASTS: Final = sa.text(
    "SELECT max(wall_s) FROM (SELECT wall_s FROM candidates WHERE run_id = :run_id ORDER BY number DESC"
    " LIMIT :recent) recent"
)


@dataclass
class FairQueue(Store):
    """Chooses among the ready evaluations of all runs.

    Attributes:
        slots: Returns the number of evaluation slots of all workers; 0 if unknown.
        can: Returns True if this worker can evaluate the candidates of a run.
    """

    slots: Callable[[], int] = field(default=lambda: 0, kw_only=True)
    can: Callable[[UUID], bool] = field(default=lambda _: True, kw_only=True)

    @with_retries
    def choose(self, work_id: UUID) -> UUID | None:
        """Return the unit to evaluate next.

        Args:
            work_id: The unit of the message that a worker received.

        Returns:
            The unit; None if this worker can evaluate none, or the free slot is left to runs that hold none. The
            reconciler then sends a message again.
        """
        with reading(self._engine) as connection:
            rows = connection.execute(_CHOOSE, {"id": work_id}).all()
        if not rows:
            return work_id
        if (found := next((row for row in rows if self.can(row.run_id)), None)) is None:
            return None
        last_one = 0 < self.slots() <= found.taken + 1
        if not (last_one and found.of_run and found.others):
            chosen: UUID = found.id
            return chosen
        with reading(self._engine) as connection:
            lasts_s = connection.execute(_LASTS, {"run_id": found.run_id, "recent": _RECENT}).scalar_one()
        return None if (lasts_s or 0.0) >= LONG_S else found.id

    @with_retries
    def foreign_run(self, work_id: UUID) -> UUID | None:
        """Return the run of a ready unit if this worker cannot evaluate it."""
        with reading(self._engine) as connection:
            run_id: UUID | None = connection.execute(_RUN, {"id": work_id}).scalar_one_or_none()
        return None if run_id is None or self.can(run_id) else run_id
