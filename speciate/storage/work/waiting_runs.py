"""Runs that wait for a worker with the programs that their problem needs (ADR 47), or for an external evaluator."""

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.capabilities import evaluator_command, required_capabilities, waiting_reason
from speciate.domain.event import EventKind
from speciate.ports.work import Commit
from speciate.storage.database import reading
from speciate.storage.runs.locking import lock_progress
from speciate.storage.statements import Statements
from speciate.storage.work.effects import dispatch_ready, write_change

SQL = Statements(__file__)
_MOST_CHANGES: Final = 256
"""Runs that one call changes: it delays recovery. Later calls change the others."""


def needed_capabilities(engine: sa.Engine) -> set[str]:
    """Programs and other capabilities that problems of running runs need."""
    with reading(engine) as connection:
        definitions = connection.execute(SQL.needs).scalars().all()
    return set().union(*map(required_capabilities, definitions))


def report_waiting(
    engine: sa.Engine, machines: Sequence[Set[str]], tiers: Set[str] = frozenset(), *, after_s: float = 12.0
) -> list[Commit]:
    """Give running runs that nobody evaluates a reason and an event, and remove the reason when somebody can.

    ``machines`` are the capabilities of each evaluate worker, ``tiers`` their sandbox tiers. A run counts as waiting
    after ``after_s`` seconds without a commit.
    """
    with reading(engine) as connection:
        rows = connection.execute(SQL.idle_runs, {"after_s": after_s, "run_id": None}).all()
    reasons = ((row, _reason(row, machines, tiers)) for row in rows)
    changes = [(row.run_id, reason) for row, reason in reasons if reason != row.reason]
    return [commit for change in changes[:_MOST_CHANGES] for commit in _explain(engine, *change, after_s)]


def _reason(row: sa.Row[Any], machines: Sequence[Set[str]], tiers: Set[str]) -> str | None:
    if row.unevaluated is not None:
        return f"waits for an external evaluator: `{evaluator_command(row.problem, row.unevaluated)}`"
    return waiting_reason(row.definition, machines, tiers) if row.own_language else None


def _explain(engine: sa.Engine, run_id: UUID, reason: str | None, after_s: float) -> list[Commit]:
    with engine.begin() as connection:
        locked = lock_progress(connection, run_id)
        # In the meantime it may have been paused, or have committed something.
        if not connection.execute(SQL.idle_runs, {"after_s": after_s, "run_id": run_id}).all():
            return []
        locked.progress.reason = reason
        if reason is not None:
            locked.event(EventKind.RUN_STALLED, message=reason)
        commit = write_change(connection, locked)
        if reason is None:  # the next repetition of its messages may be a minute away
            commit = replace(commit, dispatch=dispatch_ready(connection, run_id))
        return [commit]
