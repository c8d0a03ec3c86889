"""Campaigns on PostgreSQL: declarations, the run of each problem, and every decision with what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationKind, DeclarationState, check_transition
from speciate.domain.errors import NotFoundError
from speciate.domain.run import RunState
from speciate.domain.values import storable
from speciate.ports.records.base import Page
from speciate.ports.records.declarations import CampaignProblem, CampaignRecord, SliceRecord
from speciate.search.allocation import Decision, Slice, chance
from speciate.storage import cursors
from speciate.storage.access.quotas import hold_quota
from speciate.storage.database import reading, with_retries
from speciate.storage.declarations.declared import declare, lock, page, project_of, set_state, set_waiting, tell_fault
from speciate.storage.rows import named, read_stored, uuid7
from speciate.storage.tables import DEFAULT_PROJECT_ID, campaign_runs, campaign_slices, campaigns

_SELECT = """
SELECT c.*, n.spent, n.unlocked, (SELECT count(*) FROM campaign_slices s WHERE s.campaign_id = c.id) AS slices
FROM campaigns c CROSS JOIN LATERAL (
  SELECT coalesce(sum(p.evaluations), 0)::bigint AS spent, count(*) FILTER (WHERE EXISTS (
    SELECT FROM claims k WHERE k.run_id = r.run_id AND k.state = 'confirmed' AND k."unlock")) AS unlocked
  FROM campaign_runs r LEFT JOIN run_progress p ON p.run_id = r.run_id WHERE r.campaign_id = c.id) n
"""
_PROBLEMS = sa.text("""
SELECT r.problem, r.run_id, p.state, p.reason, coalesce(p.granted, 0) AS granted,
  coalesce(p.evaluations, 0) AS spent, coalesce(s.slices, 0) AS slices, coalesce(k.reached, '{}') AS reached,
  coalesce(k.latest, 0) AS latest, coalesce(k.unlocked, false) AS unlocked
FROM campaign_runs r LEFT JOIN run_progress p ON p.run_id = r.run_id
  LEFT JOIN (SELECT position, count(*) AS slices FROM campaign_slices WHERE campaign_id = :id GROUP BY position) s
    ON s.position = r.position
  LEFT JOIN LATERAL (SELECT array_agg(target ORDER BY evaluations, target) AS reached, max(evaluations) AS latest,
    bool_or("unlock") AS unlocked FROM claims k WHERE k.run_id = r.run_id AND k.state = 'confirmed') k ON true
WHERE r.campaign_id = :id ORDER BY r.position
""")
# What asks for something: whatever goes on or is paused, and whatever was cancelled while some of its runs were not.
_TENDED = sa.text("""
SELECT id FROM campaigns c WHERE state IN ('running', 'paused') OR state = 'cancelled' AND EXISTS (
  SELECT FROM campaign_runs r JOIN run_progress p ON p.run_id = r.run_id
    LEFT JOIN campaign_slices s ON s.campaign_id = r.campaign_id AND s.position = r.position AND s.spent IS NULL
  WHERE r.campaign_id = c.id AND (s.ord IS NOT NULL OR p.state NOT IN ('completed', 'failed', 'cancelled'))) ORDER BY id
""")
_SLICES = sa.text("SELECT * FROM campaign_slices WHERE campaign_id = :id AND ord > :after ORDER BY ord")
_DECISIONS = sa.text("""
SELECT s.*, r.problem FROM campaign_slices s
  JOIN campaign_runs r ON r.campaign_id = s.campaign_id AND r.position = s.position
WHERE s.campaign_id = :id AND s.ord < coalesce(cast(:before AS bigint), s.ord + 1) ORDER BY s.ord DESC LIMIT :limit
""")
# New is what no earlier slice reached: a claim may be confirmed long after its candidate, when another one is refuted.
_REACHED = sa.text("""
SELECT coalesce(array_agg(k.target ORDER BY k.evaluations, k.target) FILTER (WHERE NOT EXISTS (
    SELECT FROM campaign_slices s WHERE s.campaign_id = :id AND s.position = :position AND s.ord < :ord
      AND k.target = ANY(s.reached))), '{}') AS reached,
  coalesce(max(k.evaluations), 0) AS latest FROM claims k WHERE k.run_id = :run_id AND k.state = 'confirmed'
""")


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A decision with its place, and what a problem had spent before it."""

    ord: int
    first: int
    slice: Slice

    @property
    def upto(self) -> int:
        """What the problem's run may spend in all."""
        return self.first + self.slice.evaluations


@dataclass
class CampaignStore:
    """Declares, steers and reads campaigns; control hands out their evaluations.

    Attributes:
        retry_for_s: Seconds to retry a call while the server restarts.
        project: The project that is seen; None sees ids of all, and names of the default one.
    """

    _engine: sa.Engine
    retry_for_s: float = 5.0
    project: UUID | None = None

    def create(
        self, declared: Campaign, *, request_digest: str, idempotency_key: str | None = None
    ) -> tuple[UUID, bool]:
        """Store a declaration, with names that are pinned to versions; it begins at once.

        Returns:
            The id, and whether it is new: the same declaration again is the same campaign.

        Raises:
            ConflictError: The name is taken by another declaration, or the key was used for another request.
        """
        # Drawn outside what is repeated after a lost connection, so that a repetition finds what it did before.
        return self._create(uuid7(), declared, request_digest, idempotency_key)

    @with_retries
    def _create(self, new_id: UUID, declared: Campaign, request_digest: str, key: str | None) -> tuple[UUID, bool]:
        rows = [{"campaign_id": new_id, "position": i, "problem": p} for i, p in enumerate(declared.problems)]
        with self._engine.begin() as connection:
            return declare(
                connection,
                campaigns,
                new_id,
                declared,
                project=self.project,
                noun="campaign",
                request_digest=request_digest,
                key=key,
                fill=lambda: self._fill(connection, new_id, declared, rows),
            )

    def _fill(
        self, connection: sa.Connection, new_id: UUID, declared: Campaign, rows: Sequence[dict[str, object]]
    ) -> None:
        quota = hold_quota(connection, self.project or DEFAULT_PROJECT_ID)
        quota.require(connection, declared.evaluations, None, besides=new_id)
        connection.execute(sa.insert(campaign_runs), rows)

    @with_retries
    def get(self, name: str | UUID) -> CampaignRecord:
        """Return a campaign by id or name.

        Raises:
            NotFoundError: There is none.
        """
        with reading(self._engine) as connection:
            found = sa.select(campaigns.c.id).where(named(campaigns, name, self.project))
            binds = {"id": connection.execute(found).scalar_one_or_none()}
            row = connection.execute(sa.text(f"{_SELECT} WHERE c.id = :id"), binds).one_or_none()
            if row is None:
                raise NotFoundError(f"there is no campaign {str(name)!r}.")
            return _record(row, [_problem(each) for each in connection.execute(_PROBLEMS, {"id": row.id})])

    @with_retries
    def list(
        self, *, state: DeclarationState | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[CampaignRecord]:
        """Return campaigns without their problems, newest first."""
        with reading(self._engine) as connection:
            return page(
                connection,
                _SELECT,
                lambda row: _record(row, ()),
                state=state,
                project=self.project,
                limit=limit,
                cursor=cursor,
            )

    @with_retries
    def project_of(self, campaign_id: UUID) -> UUID:
        """Return the project that it was declared in."""
        with reading(self._engine) as connection:
            return project_of(connection, campaigns, campaign_id)

    @with_retries
    def decisions(self, campaign_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[SliceRecord]:
        """Return decisions, newest first."""
        before = cursors.decode(cursor, [int])[0] if cursor else None
        with reading(self._engine) as connection:
            binds = {"id": campaign_id, "before": before, "limit": limit + 1}
            rows = connection.execute(_DECISIONS, binds).all()
        return cursors.page(rows, limit, _decision, lambda row: [row.ord])

    @with_retries
    def move(
        self, campaign_id: UUID, goal: DeclarationState, reason: str | None = None, *, fault: bool = False
    ) -> None:
        """Pause, resume or cancel it; control then does the same with its runs.

        Raises:
            NotFoundError: There is none.
            ConflictError: Its state does not allow it.
        """
        with self._engine.begin() as connection:
            row = lock(connection, campaigns, campaign_id, noun="campaign")
            check_transition(DeclarationKind.CAMPAIGN, row.slug, DeclarationState(row.state), goal)
            set_state(connection, campaigns, campaign_id, goal, reason)
            if fault:
                tell_fault(connection, row, "campaign", reason)

    @with_retries
    def complete(self, campaign_id: UUID, reason: str) -> None:
        """Complete a running campaign; one that was paused or cancelled meanwhile stays so."""
        with self._engine.begin() as connection:
            if lock(connection, campaigns, campaign_id, noun="campaign").state == DeclarationState.RUNNING.value:
                set_state(connection, campaigns, campaign_id, DeclarationState.COMPLETED, reason)

    @with_retries
    def wait(self, campaign_id: UUID, reason: str | None) -> None:
        """Say why it starts nothing just now though it goes on; None takes that back."""
        with self._engine.begin() as connection:
            set_waiting(connection, campaigns, campaign_id, reason)

    @with_retries
    def pending(self) -> tuple[UUID, ...]:
        """Return the campaigns that control has something to do for."""
        with reading(self._engine) as connection:
            return tuple(connection.execute(_TENDED).scalars())

    @with_retries
    def slices(self, campaign_id: UUID, *, after: int = 0) -> tuple[StoredSlice, ...]:
        """Return decisions after a place as the allocation reads them, in their order."""
        with reading(self._engine) as connection:
            rows = connection.execute(_SLICES, {"id": campaign_id, "after": after})
            return tuple(
                StoredSlice(
                    row.ord,
                    row.first,
                    Slice(row.position, row.evaluations, row.spent, row.gap_after or 0, row.closed is not None),
                )
                for row in rows
            )

    @with_retries
    def decide(self, campaign_id: UUID, ordinal: int, first: int, decision: Decision) -> bool:
        """Keep a decision; tell whether it is the one at its place, which it is not if somebody else was faster."""
        values = {
            "campaign_id": campaign_id,
            "ord": ordinal,
            "position": decision.problem,
            "first": first,
            "evaluations": decision.evaluations,
            "gap": decision.gap,
            "chance": decision.chance,
        }
        kept = insert(campaign_slices).values(values).on_conflict_do_nothing().returning(campaign_slices.c.ord)
        with self._engine.begin() as connection:
            return connection.execute(kept).one_or_none() is not None

    @with_retries
    def attach(self, campaign_id: UUID, position: int, run_id: UUID) -> None:
        """Note the run that was started for a problem."""
        mine = (campaign_runs.c.campaign_id == campaign_id) & (campaign_runs.c.position == position)
        with self._engine.begin() as connection:
            connection.execute(sa.update(campaign_runs).where(mine).values(run_id=run_id))

    @with_retries
    def settle(self, campaign_id: UUID, stored: StoredSlice, run: CampaignProblem, closed: str | None) -> None:
        """Note what came of a slice whose run has spent it or has ended; said again, it changes nothing."""
        mine = (campaign_slices.c.campaign_id == campaign_id) & (campaign_slices.c.ord == stored.ord)
        with self._engine.begin() as connection:
            place = {"id": campaign_id, "position": stored.slice.problem, "ord": stored.ord}
            found = connection.execute(_REACHED, {**place, "run_id": run.run_id}).one()
            values = {
                "spent": run.spent - stored.first,
                "gap_after": run.spent - found.latest,
                "reached": found.reached,
                "closed": None if closed is None else storable(closed)[:2000],
            }
            connection.execute(
                sa.update(campaign_slices).where(mine & campaign_slices.c.spent.is_(None)).values(values)
            )


def _problem(row: sa.Row[Any]) -> CampaignProblem:
    state = None if row.state is None else RunState(row.state)
    gap = row.spent - row.latest
    return CampaignProblem(
        problem=row.problem,
        run_id=row.run_id,
        state=state,
        reason=row.reason,
        granted=row.granted,
        spent=row.spent,
        slices=row.slices,
        reached=tuple(row.reached),
        unlocked=row.unlocked,
        gap=gap,
        chance=0.0 if state is not None and state.ended else chance(gap),
    )


def _decision(row: sa.Row[Any]) -> SliceRecord:
    return SliceRecord(
        ord=row.ord,
        problem=row.problem,
        evaluations=row.evaluations,
        gap=row.gap,
        chance=row.chance,
        created_at=row.created_at,
        spent=row.spent,
        reached=tuple(row.reached or ()),
        closed=row.closed,
    )


def _record(row: sa.Row[Any], problems: Sequence[CampaignProblem]) -> CampaignRecord:
    return CampaignRecord(
        id=row.id,
        slug=row.slug,
        declaration=read_stored(Campaign, row.declaration),
        digest=row.digest,
        state=DeclarationState(row.state),
        reason=row.reason,
        created_at=row.created_at,
        finished_at=row.finished_at,
        spent=row.spent,
        slices=row.slices,
        unlocked=row.unlocked,
        problems=tuple(problems),
    )
