"""What happens in a run, in order. Events hold no clock readings and no random ids, so that a replay can equal them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue


class EventKind(StrEnum):
    """The kinds of events."""

    RUN_CREATED = "run.created"
    RUN_STARTED = "run.started"
    RUN_GRANTED = "run.granted"
    RUN_PAUSED = "run.paused"
    RUN_RESUMED = "run.resumed"
    RUN_STALLED = "run.stalled"
    RUN_COMPLETED = "run.completed"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    BATCH_PROPOSED = "batch.proposed"
    BATCH_EVALUATED = "batch.evaluated"
    ARCHIVE_UPDATED = "archive.updated"
    TARGET_CLAIMED = "target.claimed"
    TARGET_CONFIRMED = "target.confirmed"
    TARGET_REFUTED = "target.refuted"
    WORK_RETRIED = "work.retried"
    WORK_POISONED = "work.poisoned"
    ADVICE_WRITTEN = "advice.written"
    ALARM_RAISED = "alarm.raised"
    ALARM_CLEARED = "alarm.cleared"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run.

    Attributes:
        kind: What happened.
        data: The facts, as JSON values; candidates appear by their run-wide number.
    """

    kind: EventKind
    data: Mapping[str, JsonValue]
