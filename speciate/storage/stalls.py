"""Finding runs that are running and get nowhere, and saying so once in their event log."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from speciate.domain.event import EventKind
from speciate.domain.run import RunState
from speciate.ports.work import Commit
from speciate.runs.effects import Effects
from speciate.storage.database import reading
from speciate.storage.effects import write
from speciate.storage.progress_row import lock_progress

# Every commit sets the run's clock anew. Whoever has been told of already ends with the event that told it.
_STALLED: Final = sa.text(
    "SELECT p.run_id FROM run_progress p LEFT JOIN events e ON e.run_id = p.run_id AND e.seq = p.events"
    " WHERE p.state = 'running' AND p.running_since < clock_timestamp() - make_interval(secs => :stall_s)"
    " AND e.kind IS DISTINCT FROM 'run.stalled' LIMIT 256"
)
_WORK: Final = sa.text(
    "SELECT count(*) FILTER (WHERE state = 'ready') AS ready, count(*) FILTER (WHERE state = 'leased') AS leased,"
    " string_agg(DISTINCT kind, ' and ') AS kinds FROM work WHERE run_id = :run_id AND state IN ('ready', 'leased')"
)


def tell_stalled(engine: sa.Engine, *, stall_s: float) -> list[Commit]:
    """Append ``run.stalled`` to the log of every running run that has not committed anything for ``stall_s`` seconds.

    Returns:
        What others should hear of. The next commit of such a run ends the stall; it is told again after another one.
    """
    with reading(engine) as connection:
        stalled = connection.execute(_STALLED, {"stall_s": stall_s}).scalars().all()
    told = []
    for run_id in stalled:
        with engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            still = connection.execute(_STALLED, {"stall_s": stall_s}).scalars().all()
            if locked.progress.state is RunState.RUNNING and run_id in still:
                work = connection.execute(_WORK, {"run_id": run_id}).one()
                effects = Effects()
                effects.event(EventKind.RUN_STALLED, message=_message(stall_s, work.ready, work.leased, work.kinds))
                told.append(write(connection, locked, effects))
    return told


def _message(stall_s: float, ready: int, leased: int, kinds: str | None) -> str:
    nothing = f"nothing was committed for {stall_s:g} s"
    if not ready + leased:
        return f"{nothing}, and no work is left that could be: this is a defect"
    if not leased:
        return f"{nothing}: {ready} units of {kinds} work wait, and no worker takes them"
    return f"{nothing}: {leased} units of {kinds} work are with workers, {ready} wait"
