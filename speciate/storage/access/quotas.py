"""Quotas: what a project may use, counted in the transaction that uses it, under one lock of the project.

Whatever is declared counts on the day of its declaration with its whole budget until it has ended, then with what it
spent. A tournament or campaign counts as one, and its runs do not; a tournament that is extended counts anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.access import Quota
from speciate.domain.errors import NotFoundError, QuotaExceededError
from speciate.ports.records.projects import QuotaUsage

_HOLD: Final = sa.text(
    "SELECT slug, concurrent_runs, evaluations_per_day, tokens_per_day,"
    " date_trunc('day', clock_timestamp(), 'UTC') AS today FROM projects WHERE id = :id"
)
_LOCK: Final = sa.text("SELECT FROM projects WHERE id = :id FOR NO KEY UPDATE")
_UNDER_WAY: Final = sa.text(
    "SELECT count(*) FROM runs r JOIN run_progress g ON g.run_id = r.id"
    # One that was created and never begun is nobody's concern for long.
    " WHERE r.project_id = :id AND (g.state = 'running' OR"
    " g.state = 'created' AND r.created_at > clock_timestamp() - interval '1 minute')"
)
_ENDED: Final = "state IN ('completed', 'failed', 'cancelled')"
_BUDGET: Final = "coalesce(cast(t.declaration -> 'budget' ->> '{0}' AS bigint), 0)"
_USED: Final = sa.text(f"""
SELECT coalesce(sum(evaluations), 0)::bigint AS evaluations, coalesce(sum(tokens), 0)::bigint AS tokens FROM (
  SELECT CASE WHEN g.{_ENDED} THEN g.evaluations + g.reserved_evaluations ELSE g.budget_evaluations END AS evaluations,
    CASE WHEN g.{_ENDED} THEN g.tokens + g.reserved_tokens ELSE g.budget_tokens END AS tokens
  FROM runs r JOIN run_progress g ON g.run_id = r.id WHERE r.project_id = :id AND r.own AND r.created_at >= :today
  UNION ALL
  SELECT n.evaluations + n.open * {_BUDGET.format("evaluations")}, n.tokens + n.open * {_BUDGET.format("tokens")}
  FROM tournaments t CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE t.{_ENDED} IS FALSE AND NOT coalesce(g.{_ENDED}, false)) AS open,
      coalesce(sum(g.evaluations + g.reserved_evaluations) FILTER (WHERE t.{_ENDED} OR g.{_ENDED}), 0) AS evaluations,
      coalesce(sum(g.tokens + g.reserved_tokens) FILTER (WHERE t.{_ENDED} OR g.{_ENDED}), 0) AS tokens
    FROM tournament_runs p LEFT JOIN run_progress g ON g.run_id = p.run_id WHERE p.tournament_id = t.id) n
  WHERE t.project_id = :id AND greatest(t.created_at,
    (SELECT max(a.created_at) FROM tournament_amendments a WHERE a.tournament_id = t.id)) >= :today
  UNION ALL
  SELECT CASE WHEN c.{_ENDED} THEN n.evaluations ELSE cast(c.declaration ->> 'evaluations' AS bigint) END, n.tokens
  FROM campaigns c CROSS JOIN LATERAL (
    SELECT coalesce(sum(g.evaluations + g.reserved_evaluations), 0) AS evaluations,
      coalesce(sum(g.tokens + g.reserved_tokens), 0) AS tokens
    FROM campaign_runs p JOIN run_progress g ON g.run_id = p.run_id WHERE p.campaign_id = c.id) n
  WHERE c.project_id = :id AND c.id IS DISTINCT FROM cast(:besides AS uuid) AND c.created_at >= :today) AS declared
""")


@dataclass(frozen=True)
class HeldQuota:
    """A project's quota; where there is one, nobody else uses any of it until the transaction ends."""

    project_id: UUID
    project: str
    quota: Quota
    today: datetime

    def require_room(self, connection: sa.Connection) -> None:
        """Refuse one more run under way.

        Raises:
            QuotaExceededError: There are as many as there may be.
        """
        limit = self.quota.concurrent_runs
        if limit is not None and (used := runs_under_way(connection, self.project_id)) >= limit:
            raise QuotaExceededError(
                f"project {self.project} may have {limit:,} runs under way at once and has {used:,}.",
                remedy="Wait until one has ended, or pause or cancel one.",
            )

    def require(
        self,
        connection: sa.Connection,
        evaluations: int | None,
        tokens: int | None,
        *,
        besides: UUID | None = None,
    ) -> None:
        """Refuse what would take more than is left of the day.

        Args:
            connection: In the transaction that declares it.
            evaluations: Its budget; None where it has none.
            tokens: The same of policy tokens.
            besides: The campaign that it is, where its row is there already.

        Raises:
            QuotaExceededError: It would, or nobody can say whether it would.
        """
        asked = {
            "evaluations": (evaluations, self.quota.evaluations_per_day),
            "tokens": (tokens, self.quota.tokens_per_day),
        }
        if all(limit is None for _, limit in asked.values()):
            return
        usage = used_today(connection, self.project_id, self.today, besides=besides)
        for what, (count, limit) in asked.items():
            if limit is not None:
                self._require(what, count, limit, getattr(usage, what))

    def _require(self, what: str, count: int | None, limit: int, used: int) -> None:
        rule = f"project {self.project} may declare {limit:,} {what} a day"
        if count is None:
            raise QuotaExceededError(f"{rule}, and this has no budget of {what}.", remedy="Give it one.")
        if used + count > limit:
            ends = self.today + timedelta(days=1)
            left = f"{used:,} are declared or spent today, {max(0, limit - used):,} are left, this asks for {count:,}"
            raise QuotaExceededError(f"{rule}: {left}.", remedy=f"The day ends at {ends:%Y-%m-%d %H:%M} UTC.")


def hold_quota(connection: sa.Connection, project_id: UUID) -> HeldQuota:
    """Return a project's quota, held until the transaction ends where it limits anything."""
    row = connection.execute(_HOLD, {"id": project_id}).one_or_none()
    if row is None:
        raise NotFoundError("there is no such project.")
    limits = {name: getattr(row, name) for name in Quota.model_fields}
    if any(limit is not None for limit in limits.values()):
        connection.execute(_LOCK, {"id": project_id})
    return HeldQuota(project_id, row.slug, Quota(**limits), row.today.astimezone(UTC))


def hold_quota_of(connection: sa.Connection, run_id: UUID) -> HeldQuota:
    """Return the quota of a run's project, held in the same way."""
    query = sa.text("SELECT project_id FROM runs WHERE id = :id")
    return hold_quota(connection, connection.execute(query, {"id": run_id}).scalar_one())


def runs_under_way(connection: sa.Connection, project_id: UUID) -> int:
    """Return how many runs of a project are under way; a paused one is not."""
    return int(connection.execute(_UNDER_WAY, {"id": project_id}).scalar_one())


def used_today(
    connection: sa.Connection, project_id: UUID, today: datetime, *, besides: UUID | None = None
) -> QuotaUsage:
    """Return what counts towards the quotas of a day, but for a campaign that asks just now."""
    row = connection.execute(_USED, {"id": project_id, "today": today, "besides": besides}).one()
    return QuotaUsage(
        concurrent_runs=runs_under_way(connection, project_id),
        evaluations=row.evaluations,
        tokens=row.tokens,
        resets_at=today + timedelta(days=1),
    )


def room_of(connection: sa.Connection, project_id: UUID) -> int | None:
    """Return how many more runs of a project may be under way; None is any number."""
    query = sa.text("SELECT concurrent_runs FROM projects WHERE id = :id")
    limit = connection.execute(query, {"id": project_id}).scalar_one()
    return None if limit is None else max(0, limit - runs_under_way(connection, project_id))
