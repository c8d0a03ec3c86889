"""The shared learner of a campaign: which run has it, and what its runs learned together (ADR 52)."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import ConflictError
from speciate.domain.learning import learned_slug
from speciate.domain.run import RunState
from speciate.ports.work import Commit
from speciate.runs.learning import LearningState, receive_learner
from speciate.schema.runs import LearningRecord
from speciate.storage.runs.locking import lock_progress
from speciate.storage.statements import Statements
from speciate.storage.work.effects import write_change

SQL = Statements(__file__)
STEPS: Final = SQL.steps
_COUNTS: Final = ("taken", "seen", "used", "flat", "stale", "dropped", "tokens", "seconds")


def move_learner(
    connection: sa.Connection, campaign_id: UUID, campaign: str, base: str, run_id: UUID
) -> tuple[Commit, ...]:
    """Give the learner to a run, in one transaction with the groups that wait. A repetition changes nothing.

    ``base`` is the name of the policy that the campaign began with. Raises ``ConflictError`` while the run that has the
    learner is still at work.
    """
    holder = connection.execute(SQL.holder, {"id": campaign_id}).scalar_one_or_none()
    if holder == run_id:
        return ()
    runs = {each: lock_progress(connection, each) for each in sorted({run_id, *([holder] if holder else [])})}
    locked, before = runs[run_id], runs.get(holder) if holder else None
    if before is not None and before.progress.live:
        raise ConflictError(f"run {holder} is still at work.")
    if locked.progress.state not in {RunState.CREATED, RunState.PAUSED} or locked.progress.live:
        raise ConflictError(f"run {run_id} does not begin a turn.")
    last = None if before is None else before.progress
    receive_learner(locked, learned_slug(base, campaign_id.hex), campaign, last, holder)
    connection.execute(SQL.give, {"id": campaign_id, "run_id": run_id})
    commits = [write_change(connection, locked)]
    if before is not None:
        row = connection.execute(SQL.take, {"run_id": holder, "learning": before.progress.learning}).one()
        commits.append(Commit(before.run_id, revision=row.revision, last_event=row.events))
    return tuple(commits)


def learned_by(connection: sa.Connection, campaign_id: UUID) -> LearningRecord:
    """Return what the runs of a campaign learned: their counts together, and the version in use if they share one."""
    rows = connection.execute(SQL.learned, {"id": campaign_id}).all()
    states = [LearningState.model_validate(row.learning) for row in rows]
    shared = next((state for row, state in zip(rows, states, strict=True) if row.learner), LearningState())
    sums: Mapping[str, Any] = {name: sum(getattr(state, name) for state in states) for name in _COUNTS}
    return LearningRecord(
        **sums,
        step=shared.step,
        campaign=shared.campaign,
        version=f"{shared.slug}@{shared.step}" if shared.slug and shared.step else None,
        ended=shared.ended,
        busy=any(s.busy and not RunState(row.state).ended for row, s in zip(rows, states, strict=True)),
        waiting=sum(len(state.waiting) for state in states),
    )
