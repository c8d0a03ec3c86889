"""The queue of deliveries: events enter it in the transaction that causes them, and senders lease them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.diagnosis import FAILURES, alarm_name
from speciate.domain.event import Event, EventKind
from speciate.domain.webhook import GIVE_UP_AFTER_S, WebhookEvent
from speciate.ids import uuid7
from speciate.schema.webhooks import DueDelivery
from speciate.storage.database import ScopedStore, with_retries
from speciate.storage.statements import Statements

SQL = Statements(__file__)

LEASE_S: Final = 30.0
"""Seconds until another sender may send a leased delivery; longer than an attempt takes."""

KEPT_S: Final = 30 * 24 * 3600.0
"""Seconds for which finished deliveries are kept."""


_REPORTED: Final[Mapping[EventKind, tuple[WebhookEvent, Mapping[str, str]]]] = {
    EventKind.TARGET_CONFIRMED: (WebhookEvent.UNLOCK, {}),
    EventKind.RUN_COMPLETED: (WebhookEvent.RUN_FINISHED, {"state": "completed"}),
    EventKind.RUN_FAILED: (WebhookEvent.RUN_FINISHED, {"state": "failed"}),
    EventKind.RUN_CANCELLED: (WebhookEvent.RUN_FINISHED, {"state": "cancelled"}),
    EventKind.ALARM_RAISED: (WebhookEvent.ALARM, {"name": FAILURES}),
    EventKind.RUN_STALLED: (WebhookEvent.ALARM, {"name": "run.stuck"}),
    EventKind.RUN_PAUSED: (WebhookEvent.ALARM, {"name": "run.paused"}),
}
"""Events of runs that webhooks report, with what they add to the event's data."""


@dataclass
class DeliveryQueue(ScopedStore):
    """Leases deliveries to senders, and records their attempts."""

    @with_retries
    def claim(self, limit: int) -> tuple[DueDelivery, ...]:
        with self._engine.begin() as connection:
            rows = connection.execute(SQL.claim, {"limit": limit, "lease_s": LEASE_S}).all()
        return tuple(DueDelivery(**{**row._asdict(), "event": WebhookEvent(row.event)}) for row in rows)

    def delivered(self, delivery: DueDelivery, status: int) -> None:
        self._execute(SQL.delivered, {"id": delivery.id, "status": status})

    def postpone(self, delivery: DueDelivery, status: int | None, error: str, wait_s: float) -> None:
        """Record a failed attempt; retry after ``wait_s`` seconds, or give up if that is too late."""
        values = {"id": delivery.id, "status": status, "error": error, "wait_s": wait_s, "attempts": delivery.attempts}
        self._execute(SQL.postpone, {**values, "tried_for_s": GIVE_UP_AFTER_S})

    def delete_old(self) -> int:
        return self._execute(SQL.delete_old, {"kept_s": KEPT_S})


def enqueue_events(connection: sa.Connection, run_id: UUID, events: Sequence[Event]) -> None:
    """Enqueue those of a run's new events that webhooks subscribe to; call before saving the progress."""
    relevant = [event for event in events if _is_reported(event)]
    if not relevant:
        return
    run = connection.execute(SQL.run, {"id": run_id}).one()
    about = {"run_id": str(run.id), "problem": run.problem, "policy": run.policy, "strategy": run.strategy}
    # An ensemble is reported with all its policies.
    about |= {"mutator": run.mutator} if run.mutator else {}
    about |= {"ensemble": run.ensemble} if run.ensemble else {}
    for event in relevant:
        name, facts = _REPORTED[event.kind]
        data = {**about, **facts, **_data(event)}
        # An alarm is raised repeatedly while it lasts, and reported once.
        if event.kind is not EventKind.ALARM_RAISED or alarm_name(run.alarm) != data["name"]:
            enqueue(connection, name, run.project_id, data)


def enqueue(connection: sa.Connection, event: WebhookEvent, project_id: UUID, data: Mapping[str, Any]) -> None:
    """Enqueue an event for every subscribed webhook of a project."""
    subscribed = connection.execute(SQL.subscribed, {"event": event.value, "project_id": project_id}).scalars().all()
    rows = [{"id": uuid7(), "webhook_id": webhook, "event": event.value, "data": dict(data)} for webhook in subscribed]
    if rows:
        connection.execute(SQL.enqueue, rows)


def _is_reported(event: Event) -> bool:
    if event.kind is EventKind.TARGET_CONFIRMED:
        return bool(event.data.get("unlock"))
    # A user who pauses a run needs no alarm.
    return event.kind in _REPORTED and (event.kind is not EventKind.RUN_PAUSED or bool(event.data.get("fault")))


def _data(event: Event) -> Mapping[str, Any]:
    if event.kind is not EventKind.RUN_PAUSED:
        return event.data
    diagnosis = event.data.get("diagnosis")
    return {"message": event.data.get("reason"), **({"diagnosis": diagnosis} if diagnosis else {})}
