"""Runs that wait for a worker with the programs that their problem needs (ADR 47)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa

from speciate.domain.event import EventKind
from speciate.domain.run import RunState
from speciate.ports.work import Commit, WorkKind, WorkRef
from speciate.runs.missing_languages import required_capabilities, waiting_reason
from speciate.runs.progress import Effects
from speciate.storage.database import reading
from speciate.storage.runs.progress import lock_progress
from speciate.storage.work.effects import write_effects

_RUNNING: Final = (
    " FROM run_progress p JOIN runs r ON r.id = p.run_id JOIN problems d ON d.id = r.problem_id"
    " WHERE p.state = 'running' AND jsonb_typeof(d.definition -> 'language') = 'object'"
)
# The parts of a definition that ``required_capabilities`` reads.
_PARTS: Final = (
    "jsonb_build_object('language', d.definition -> 'language', 'image', d.definition -> 'image',"
    " 'writable', d.definition -> 'writable') AS parts"
)
_NEEDED: Final = sa.text(f"SELECT DISTINCT {_PARTS}{_RUNNING}")
# A commit sets the clock of a run: one that works is left alone, and workers announce themselves in the meantime.
_CANDIDATES: Final = sa.text(
    f"SELECT p.run_id, {_PARTS}, p.reason{_RUNNING} AND (p.reason IS NOT NULL"
    " OR p.running_since < clock_timestamp() - make_interval(secs => :after_s)) LIMIT 256"
)

_SEND: Final = sa.text(
    "UPDATE work SET dispatched_at = clock_timestamp(), resends = 0 WHERE run_id = :run_id AND state = 'ready'"
    " RETURNING id, kind"
)


def needed_capabilities(engine: sa.Engine) -> set[str]:
    """Programs and abilities that problems of running runs need."""
    with reading(engine) as connection:
        definitions = connection.execute(_NEEDED).scalars().all()
    return set().union(*map(required_capabilities, definitions))


def report_waiting(
    engine: sa.Engine, machines: Sequence[Set[str]], tiers: Set[str] = frozenset(), *, after_s: float = 12.0
) -> list[Commit]:
    """Give running runs that no worker can evaluate a reason and an event, and remove the reason when one can.

    Args:
        engine: The database.
        machines: Capabilities of each evaluate worker.
        tiers: Sandbox tiers of these workers.
        after_s: Seconds without a commit after which a run counts as waiting.

    Returns:
        The commits to publish.
    """
    with reading(engine) as connection:
        rows = connection.execute(_CANDIDATES, {"after_s": after_s}).all()
    commits = []
    for row in rows:
        reason = waiting_reason(row.parts, machines, tiers)
        if reason != row.reason:
            commits += _explain(engine, row.run_id, reason)
    return commits


def _explain(engine: sa.Engine, run_id: Any, reason: str | None) -> list[Commit]:
    with engine.begin() as connection:
        locked = lock_progress(connection, run_id)
        if locked.progress.state is not RunState.RUNNING:
            return []
        locked.progress.reason = reason
        effects = Effects()
        if reason is not None:
            effects.event(EventKind.RUN_STALLED, message=reason)
        commit = write_effects(connection, locked, effects)
        if reason is None:  # the next repetition of its messages may be a minute away
            ready = connection.execute(_SEND, {"run_id": run_id}).all()
            commit = replace(commit, dispatch=tuple(WorkRef(row.id, WorkKind(row.kind)) for row in ready))
        return [commit]
