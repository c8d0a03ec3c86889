"""Share evaluation slots fairly: by project, then by run, and never all of them for evaluations that last long.

A message says that some unit is ready; the worker that receives it takes the unit of the run that has the fewest. The
unit that is passed over is taken with another message, since there are as many messages as ready units.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast
from uuid import UUID

from speciate.domain.errors import NewerRecordError
from speciate.storage.database import Store
from speciate.storage.statements import Statements

SQL = Statements(__file__)

LONG_S: Final = 2.0
"""Seconds of an evaluation from which a run leaves the last free slot to others."""

_RECENT: Final = 8


@dataclass
class FairQueue(Store):
    """Chooses among the ready evaluations of all runs."""

    slots: Callable[[], int] = field(default=lambda: 0, kw_only=True)
    """Returns the number of evaluation slots of all workers; 0 if unknown."""
    can: Callable[[UUID], bool] = field(default=lambda _: True, kw_only=True)
    """Returns True if this worker can evaluate the candidates of a run."""

    def choose(self, work_id: UUID) -> UUID | None:
        """Return the unit that the receiver of a unit's message evaluates next.

        None if this worker can evaluate none, or the free slot is left to runs that have none. The reconciler then
        sends a message again.
        """
        rows = self._rows(SQL.choose, {"id": work_id})
        if not rows:
            return work_id
        if (row := next((row for row in rows if self._can(row.run_id)), None)) is None:
            return None
        last_one = 0 < self.slots() <= row.taken + 1
        if not (last_one and row.of_run and row.others):
            return cast("UUID", row.id)
        lasts_s = self._value(SQL.longest, {"run_id": row.run_id, "recent": _RECENT})
        return None if (lasts_s or 0.0) >= LONG_S else row.id

    def unsupported_run(self, work_id: UUID) -> UUID | None:
        """Return the run of a ready unit if this worker cannot evaluate it."""
        run_id: UUID | None = self._value(SQL.run, {"id": work_id})
        return None if run_id is None or self._can(run_id) else run_id

    def _can(self, run_id: UUID) -> bool:
        try:
            return self.can(run_id)
        except NewerRecordError:
            return True  # its execution pauses the run, with the reason
