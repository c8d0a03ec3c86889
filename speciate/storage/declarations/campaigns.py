"""Store campaigns: the run of each problem, and every decision with its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationKind
from speciate.domain.run import RunState
from speciate.domain.values import storable
from speciate.ports.work import Commit
from speciate.schema.base import Page
from speciate.schema.declarations import CampaignProblem, CampaignRecord, SliceRecord
from speciate.search.allocation import Decision, Slice, chance
from speciate.storage import cursors
from speciate.storage.access.quotas import lock_quota
from speciate.storage.database import reading, with_retries
from speciate.storage.declarations.learner import learned_by, move_learner, steps_of
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.lookup import read_stored
from speciate.storage.tables import campaign_runs, campaign_slices, campaigns

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
_SLICES = sa.text("SELECT * FROM campaign_slices WHERE campaign_id = :id AND ord > :after ORDER BY ord")
_DECISIONS = sa.text("""
SELECT s.*, r.problem FROM campaign_slices s
  JOIN campaign_runs r ON r.campaign_id = s.campaign_id AND r.position = s.position
WHERE s.campaign_id = :id AND s.ord < coalesce(cast(:before AS bigint), s.ord + 1) ORDER BY s.ord DESC LIMIT :limit
""")
# Targets that no earlier slice reached: a claim may be confirmed long after its candidate, when another is refuted.
_REACHED = sa.text("""
SELECT coalesce(array_agg(k.target ORDER BY k.evaluations, k.target) FILTER (WHERE NOT EXISTS (
    SELECT FROM campaign_slices s WHERE s.campaign_id = :id AND s.position = :position AND s.ord < :ord
      AND k.target = ANY(s.reached))), '{}') AS reached,
  coalesce(max(k.evaluations), 0) AS latest FROM claims k WHERE k.run_id = :run_id AND k.state = 'confirmed'
""")


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice with its position among the decisions.

    Attributes:
        ord: Position, from 1.
        first: Evaluations that the problem had spent before the slice.
        slice: The slice as the allocation reads it.
    """

    ord: int
    first: int
    slice: Slice

    @property
    def upto(self) -> int:
        """Total evaluations that the problem's run may spend."""
        return self.first + self.slice.evaluations


@dataclass
class CampaignStore(DeclarationStore[Campaign, CampaignRecord]):
    """Store of campaigns, their problems and slices."""

    kind: ClassVar[DeclarationKind] = DeclarationKind.CAMPAIGN
    _table: ClassVar[sa.Table] = campaigns
    _select: ClassVar[str] = """
SELECT d.*, n.spent, n.unlocked, (SELECT count(*) FROM campaign_slices s WHERE s.campaign_id = d.id) AS slices
FROM campaigns d CROSS JOIN LATERAL (
  SELECT coalesce(sum(p.evaluations), 0)::bigint AS spent, count(*) FILTER (WHERE EXISTS (
    SELECT FROM claims k WHERE k.run_id = r.run_id AND k.state = 'confirmed' AND k."unlock")) AS unlocked
  FROM campaign_runs r LEFT JOIN run_progress p ON p.run_id = r.run_id WHERE r.campaign_id = d.id) n
"""
    # Running and paused campaigns, and cancelled ones with an open run or slice.
    pending_query: ClassVar[sa.TextClause] = sa.text("""
SELECT id FROM campaigns c WHERE state IN ('running', 'paused') OR state = 'cancelled' AND EXISTS (
  SELECT FROM campaign_runs r JOIN run_progress p ON p.run_id = r.run_id
    LEFT JOIN campaign_slices s ON s.campaign_id = r.campaign_id AND s.position = r.position AND s.spent IS NULL
  WHERE r.campaign_id = c.id AND (s.ord IS NOT NULL OR p.state NOT IN ('completed', 'failed', 'cancelled'))) ORDER BY id
""")

    def _fill(self, connection: sa.Connection, new_id: UUID, declared: Campaign) -> None:
        quota = lock_quota(connection, self._home)
        quota.require(connection, declared.evaluations, None, besides=new_id)
        rows = [{"campaign_id": new_id, "position": i, "problem": p} for i, p in enumerate(declared.problems)]
        connection.execute(sa.insert(campaign_runs), rows)

    def _record(self, connection: sa.Connection, row: sa.Row[Any]) -> CampaignRecord:  # noqa: ARG002
        values = {**row._asdict(), "declaration": read_stored(Campaign, row.declaration)}
        return CampaignRecord.model_validate(values)

    def _detailed(self, connection: sa.Connection, row: sa.Row[Any]) -> CampaignRecord:
        problems = tuple(_problem(each) for each in connection.execute(_PROBLEMS, {"id": row.id}))
        record = self._record(connection, row)
        learning = None if record.declaration.learning is None else learned_by(connection, row.id)
        return record.model_copy(update={"problems": problems, "learning": learning})

    @with_retries
    def decisions(self, campaign_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[SliceRecord]:
        """Return decisions, newest first."""
        before = cursors.decode(cursor, [int])[0] if cursor else None
        with reading(self._engine) as connection:
            binds = {"id": campaign_id, "before": before, "limit": limit + 1}
            rows = connection.execute(_DECISIONS, binds).all()
        return cursors.page(rows, limit, _decision, lambda row: [row.ord])

    @with_retries
    def slices(self, campaign_id: UUID, *, after: int = 0) -> tuple[StoredSlice, ...]:
        """Return the slices after a position, in order, as the allocation reads them."""
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
        """Store a decision; return False if another leader already stored one at its position."""
        values = {
            "campaign_id": campaign_id,
            "ord": ordinal,
            "position": decision.problem,
            "first": first,
            "evaluations": decision.evaluations,
            "gap": decision.gap,
            "chance": decision.chance,
        }
        statement = insert(campaign_slices).values(values).on_conflict_do_nothing().returning(campaign_slices.c.ord)
        with self._engine.begin() as connection:
            return connection.execute(statement).one_or_none() is not None

    @with_retries
    def attach(self, campaign_id: UUID, position: int, run_id: UUID) -> None:
        """Record the run that was created for a problem."""
        where = (campaign_runs.c.campaign_id == campaign_id) & (campaign_runs.c.position == position)
        with self._engine.begin() as connection:
            connection.execute(sa.update(campaign_runs).where(where).values(run_id=run_id))

    @with_retries
    def move_learner(self, record: CampaignRecord, run_id: UUID) -> tuple[Commit, ...]:
        """Give the shared learner of a campaign to the run that begins its turn; see ``declarations.learner``."""
        base = next(iter(record.declaration.policy)).partition("@")[0]
        with self._engine.begin() as connection:
            return move_learner(connection, record.id, record.slug, base, run_id)

    @with_retries
    def learning_steps(self, campaign_id: UUID) -> tuple[dict[str, Any], ...]:
        """Return the data of the training steps of a campaign's runs, by number of the step."""
        with reading(self._engine) as connection:
            return steps_of(connection, campaign_id)

    @with_retries
    def settle(self, campaign_id: UUID, stored: StoredSlice, run: CampaignProblem, closed: str | None) -> None:
        """Record the result of a slice that is spent or whose run has ended; a repetition changes nothing."""
        where = (campaign_slices.c.campaign_id == campaign_id) & (campaign_slices.c.ord == stored.ord)
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
                sa.update(campaign_slices).where(where & campaign_slices.c.spent.is_(None)).values(values)
            )


def _problem(row: sa.Row[Any]) -> CampaignProblem:
    gap = row.spent - row.latest
    closed = row.state is not None and RunState(row.state).ended
    return CampaignProblem.model_validate({**row._asdict(), "gap": gap, "chance": 0.0 if closed else chance(gap)})


def _decision(row: sa.Row[Any]) -> SliceRecord:
    return SliceRecord.model_validate({**row._asdict(), "reached": row.reached or ()})
