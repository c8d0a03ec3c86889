"""Store campaigns: the run of each problem, and every decision with its result."""

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.campaign import WAITS_FOR_GRANT, Campaign
from speciate.domain.declaration import DeclarationKind
from speciate.domain.run import RunState
from speciate.domain.values import MAX_REASON, storable
from speciate.ports.work import Commit
from speciate.schema.base import Page
from speciate.schema.declarations import CampaignProblem, CampaignRecord, SliceRecord
from speciate.search.allocation import Decision, Slice, chance
from speciate.storage import cursors
from speciate.storage.access.quotas import lock_quota
from speciate.storage.database import with_retries
from speciate.storage.declarations.learner import STEPS, learned_by, move_learner
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.lookup import read_stored
from speciate.storage.statements import Statements
from speciate.storage.tables.declarations import campaigns


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice with its position among the decisions."""

    ord: int
    """Position, from 1."""
    first: int
    """Evaluations that the problem had spent before the slice."""
    slice: Slice
    """The slice as the allocation reads it."""

    @property
    def upto(self) -> int:
        """Total evaluations that the problem's run may spend."""
        return self.first + self.slice.evaluations


@dataclass
class CampaignStore(DeclarationStore[Campaign, CampaignRecord]):
    kind: ClassVar[DeclarationKind] = DeclarationKind.CAMPAIGN
    _table: ClassVar[sa.Table] = campaigns
    sql: ClassVar[Statements] = Statements(__file__, waits=f"'{WAITS_FOR_GRANT}'")

    def _fill(self, connection: sa.Connection, new_id: UUID, declared: Campaign) -> None:
        lock_quota(connection, self._home).require(connection, declared.evaluations, None, besides=new_id)
        connection.execute(self.sql.add_problems, {"id": new_id, "problems": list(declared.problems)})

    def _record(self, connection: sa.Connection, row: sa.Row[Any]) -> CampaignRecord:  # noqa: ARG002
        return CampaignRecord.model_validate(row._asdict() | {"declaration": read_stored(Campaign, row.declaration)})

    def _detailed(self, connection: sa.Connection, row: sa.Row[Any]) -> CampaignRecord:
        problems = tuple(_problem(each) for each in connection.execute(self.sql.problems, {"id": row.id}))
        record = self._record(connection, row)
        learning = None if record.declaration.learning is None else learned_by(connection, row.id)
        return record.model_copy(update={"problems": problems, "learning": learning})

    def decisions(self, campaign_id: UUID, *, limit: int = 100, cursor: str | None = None) -> Page[SliceRecord]:
        """Return decisions, newest first."""
        binds = {"id": campaign_id, "before": cursors.decode(cursor, [int])[0] if cursor else None, "limit": limit + 1}
        rows = [{**row._asdict(), "reached": row.reached or ()} for row in self._rows(self.sql.decisions, binds)]
        return cursors.page(rows, limit, SliceRecord.model_validate, lambda row: [row["ord"]])

    def slices(self, campaign_id: UUID, *, after: int = 0) -> tuple[StoredSlice, ...]:
        """Return the slices after a position, in order, as the allocation reads them."""
        rows = self._rows(self.sql.slices, {"id": campaign_id, "after": after})
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
            "id": campaign_id,
            "ord": ordinal,
            "position": decision.problem,
            "first": first,
            "evaluations": decision.evaluations,
            "gap": decision.gap,
            "chance": decision.chance,
        }
        with self._engine.begin() as connection:
            return connection.execute(self.sql.decide, values).one_or_none() is not None

    def attach(self, campaign_id: UUID, position: int, run_id: UUID) -> None:
        """Record the run that was created for a problem."""
        self._execute(self.sql.attach, {"id": campaign_id, "position": position, "run_id": run_id})

    @with_retries
    def move_learner(self, record: CampaignRecord, run_id: UUID) -> tuple[Commit, ...]:
        """Give the shared learner of a campaign to the run that begins its turn; see ``declarations.learner``."""
        base = next(iter(record.declaration.policy)).partition("@")[0]
        with self._engine.begin() as connection:
            return move_learner(connection, record.id, record.slug, base, run_id)

    def learning_steps(self, campaign_id: UUID) -> tuple[dict[str, Any], ...]:
        """Return the data of the newest training steps of a campaign's runs, by number of the step."""
        return tuple(row[0] for row in reversed(self._rows(STEPS, {"id": campaign_id, "limit": 10_000})))

    @with_retries
    def settle(self, campaign_id: UUID, stored: StoredSlice, run: CampaignProblem, closed: str | None) -> None:
        """Record the result of a slice that is spent or whose run has ended; a repetition changes nothing."""
        keys = {"id": campaign_id, "position": stored.slice.problem, "ord": stored.ord}
        with self._engine.begin() as connection:
            result = connection.execute(self.sql.reached, {**keys, "run_id": run.run_id}).one()
            values = {
                "spent": run.spent - stored.first,
                "gap_after": run.spent - result.latest,
                "reached": result.reached,
                "closed": None if closed is None else storable(closed)[:MAX_REASON],
            }
            connection.execute(self.sql.settle, keys | values)


def _problem(row: sa.Row[Any]) -> CampaignProblem:
    gap = row.spent - row.latest
    closed = row.state is not None and RunState(row.state).ended
    return CampaignProblem.model_validate({**row._asdict(), "gap": gap, "chance": 0.0 if closed else chance(gap)})
