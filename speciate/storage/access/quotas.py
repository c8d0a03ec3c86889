"""Enforce the quotas of projects, in the transaction that uses them and under a lock of the project.

A run, tournament or campaign counts on the day it is declared: with its whole budget until it ends, then with what it
spent. The runs of a tournament or campaign do not count separately. An extended tournament counts on the day of the
extension.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.access import Quota
from speciate.domain.errors import NotFoundError, QuotaExceededError
from speciate.schema.projects import QuotaUsage
from speciate.storage.statements import Statements

SQL = Statements(__file__)


@dataclass(frozen=True)
class LockedQuota:
    """A project's quota, locked until the transaction ends if it limits anything."""

    project_id: UUID
    project: str
    quota: Quota
    today: datetime

    def require_run_slot(self, connection: sa.Connection) -> None:
        """Raise ``QuotaExceededError`` unless one more run may be under way."""
        limit = self.quota.concurrent_runs
        if limit is not None and (used := runs_under_way(connection, self.project_id)) >= limit:
            raise QuotaExceededError(
                f"project {self.project} may have {limit:,} runs under way at once and has {used:,}.",
                remedy="Wait for one to end, or pause or cancel one.",
            )

    def require(
        self, connection: sa.Connection, evaluations: int | None, tokens: int | None, *, besides: UUID | None = None
    ) -> None:
        """Check that a new declaration fits into the rest of the day's quota; a budget of None is unlimited.

        ``besides`` is the id of the campaign itself if its row exists already.
        """
        demands = {
            "evaluations": (evaluations, self.quota.evaluations_per_day),
            "tokens": (tokens, self.quota.tokens_per_day),
        }
        if all(limit is None for _, limit in demands.values()):
            return
        usage = used_today(connection, self.project_id, self.today, besides=besides)
        for what, (count, limit) in demands.items():
            if limit is not None:
                self._require(what, count, limit, getattr(usage, what))

    def _require(self, what: str, count: int | None, limit: int, used: int) -> None:
        rule = f"project {self.project} may declare {limit:,} {what} a day"
        if count is None:
            remedy = f"Declare one{'; campaigns cannot' * (what == 'tokens')}."
            raise QuotaExceededError(f"{rule}; this has no budget of {what}.", remedy=remedy)
        if used + count > limit:
            ends = self.today + timedelta(days=1)
            left = f"{used:,} are declared or spent today, {max(0, limit - used):,} are left, this requests {count:,}"
            raise QuotaExceededError(f"{rule}: {left}.", remedy=f"The day ends at {ends:%Y-%m-%d %H:%M} UTC.")


def lock_quota(connection: sa.Connection, project_id: UUID) -> LockedQuota:
    row = connection.execute(SQL.quota, {"id": project_id}).one_or_none()
    if row is None:
        raise NotFoundError("there is no such project.")
    limits = {name: getattr(row, name) for name in Quota.model_fields}
    if any(limit is not None for limit in limits.values()):
        connection.execute(SQL.lock_project, {"id": project_id})
    return LockedQuota(project_id, row.slug, Quota(**limits), row.today.astimezone(UTC))


def lock_quota_of_run(connection: sa.Connection, run_id: UUID) -> LockedQuota:
    return lock_quota(connection, connection.execute(SQL.project_of_run, {"id": run_id}).scalar_one())


def runs_under_way(connection: sa.Connection, project_id: UUID) -> int:
    """Return the number of a project's runs under way; paused ones do not count."""
    return int(connection.execute(SQL.runs_under_way, {"id": project_id}).scalar_one())


def used_today(
    connection: sa.Connection, project_id: UUID, today: datetime, *, besides: UUID | None = None
) -> QuotaUsage:
    """Return what counts towards the quotas of a day, except for the campaign ``besides``."""
    row = connection.execute(SQL.used, {"id": project_id, "today": today, "besides": besides}).one()
    return QuotaUsage(
        concurrent_runs=runs_under_way(connection, project_id),
        evaluations=row.evaluations,
        tokens=row.tokens,
        resets_at=today + timedelta(days=1),
    )


def free_run_slots(connection: sa.Connection, project_id: UUID) -> int | None:
    """Return how many more runs of a project may be under way; None is unlimited."""
    limit = connection.execute(SQL.concurrent_runs, {"id": project_id}).scalar_one()
    return None if limit is None else max(0, limit - runs_under_way(connection, project_id))
