"""Read the version and the groups that a run learns from, and store the versions that it writes."""

from collections.abc import Sequence
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.policy import Policy
from speciate.domain.rollout import Prompt
from speciate.ids import uuid7
from speciate.ports.work import GroupRef, LearnedStep, LearnedVersion, StoredGroup, StoredRollout
from speciate.storage.lookup import read_stored
from speciate.storage.statements import Statements
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID

SQL = Statements(__file__)


def read_learned(connection: sa.Connection, run_id: UUID) -> LearnedVersion | None:
    row = connection.execute(SQL.learned, {"run_id": run_id}).one_or_none()
    return None if row is None else LearnedVersion(read_stored(Policy, row.definition), row.id, row.version)


def read_groups(connection: sa.Connection, run_id: UUID, refs: Sequence[GroupRef]) -> tuple[StoredGroup, ...]:
    """Return groups of completions with the rewards of their answers."""
    return tuple(_read_group(connection, run_id, ref) for ref in refs)


def _read_group(connection: sa.Connection, run_id: UUID, ref: GroupRef) -> StoredGroup:
    place = {**ref.model_dump(exclude={"run"}), "run_id": ref.run or run_id}
    rows = connection.execute(SQL.rollouts, place).all()
    earned: dict[UUID, list[tuple[float, ...] | None]] = {row.id: [] for row in rows}
    for candidate in connection.execute(SQL.rewards, place):
        if candidate.rollout_id in earned:
            earned[candidate.rollout_id].append(None if candidate.rewards is None else tuple(candidate.rewards))
    kept = ((tuple(row.token_ids or ()), tuple(row.logprobs or ()), tuple(earned[row.id])) for row in rows)
    return StoredGroup(Prompt(rows[0].system, rows[0].user), tuple(StoredRollout(*each) for each in kept))


def insert_version(connection: sa.Connection, step: LearnedStep, project_id: UUID | None) -> UUID:
    policy_id = uuid7()
    row = {
        "id": policy_id,
        "project_id": project_id or DEFAULT_PROJECT_ID,
        "slug": step.policy.slug,
        "version": step.number,
        "digest": step.policy.digest,
        "definition": step.policy.stored_json(),
    }
    connection.execute(SQL.insert_version, row)
    return policy_id
