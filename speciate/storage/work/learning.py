"""Read the version and the groups that a run learns from, and store the versions that it writes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.policy import Policy
from speciate.domain.rollout import Prompt
from speciate.ids import uuid7
from speciate.ports.work import GroupRef, LearnedStep, LearnedVersion, RunContext, StoredGroup, StoredRollout
from speciate.storage.lookup import read_stored
from speciate.storage.tables import DEFAULT_PROJECT_ID, policies

_LEARNED = sa.text(
    "SELECT a.id, a.definition, a.version FROM run_progress p"
    " JOIN policies a ON a.id = cast(p.learning ->> 'policy_id' AS uuid) WHERE p.run_id = :run_id"
)
_ROLLOUTS = sa.text(
    'SELECT r.id, r.ord, r.token_ids, r.logprobs, p.system, p."user" FROM rollouts r'
    " JOIN prompts p ON p.digest = r.prompt_digest"
    " WHERE r.run_id = :run_id AND r.batch = :batch AND r.ord >= :first AND r.ord < :first + :size ORDER BY r.ord"
)
_REWARDS = sa.text(
    "SELECT rollout_id, rewards FROM candidates WHERE run_id = :run_id AND number >= :number"
    " AND number < :number + :count ORDER BY number"
)


def read_learned(connection: sa.Connection, run_id: UUID) -> LearnedVersion | None:
    """Return the learned version that a run uses."""
    row = connection.execute(_LEARNED, {"run_id": run_id}).one_or_none()
    return None if row is None else LearnedVersion(read_stored(Policy, row.definition), row.id, row.version)


def read_group(connection: sa.Connection, run_id: UUID, ref: GroupRef) -> StoredGroup:
    """Return the completions of a group with the rewards of their answers."""
    place = {**ref.model_dump(exclude={"run"}), "run_id": ref.run or run_id}
    rows = connection.execute(_ROLLOUTS, place).all()
    earned: dict[UUID, list[tuple[float, ...] | None]] = {row.id: [] for row in rows}
    for found in connection.execute(_REWARDS, place):
        if found.rollout_id in earned:
            earned[found.rollout_id].append(None if found.rewards is None else tuple(found.rewards))
    return StoredGroup(Prompt(rows[0].system, rows[0].user), tuple(_rollout(row, earned[row.id]) for row in rows))


def _rollout(row: sa.Row[Any], rewards: list[tuple[float, ...] | None]) -> StoredRollout:
    return StoredRollout(tuple(row.token_ids or ()), tuple(row.logprobs or ()), tuple(rewards))


def insert_version(connection: sa.Connection, context: RunContext, step: LearnedStep) -> UUID:
    """Store the policy version of a step, in the transaction that books it, and return its id."""
    policy_id = uuid7()
    connection.execute(
        sa.insert(policies).values(
            id=policy_id,
            project_id=context.project_id or DEFAULT_PROJECT_ID,
            slug=step.policy.slug,
            version=step.number,
            digest=step.policy.digest,
            definition=step.policy.stored_json(),
        )
    )
    return policy_id
