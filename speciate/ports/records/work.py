"""What workers hold, and who they are."""

from __future__ import annotations

from uuid import UUID

from speciate.ports.records.base import Record


class WorkRecord(Record):
    """A unit of work that somebody holds, or that waits."""

    work_id: UUID
    run_id: UUID
    kind: str
    state: str
    attempt: int
    lane: int
    lease_seconds_left: float | None


class WorkerProcess(Record):
    """A worker process that is there.

    Attributes:
        slots: Units of work it does at once.
        tier: Containment under which it evaluates candidates; empty when it evaluates none.
    """

    name: str
    pid: int
    version: str
    queues: tuple[str, ...]
    slots: int
    tier: str
