"""Events of a run, in order. They hold no clock readings and no random ids, so that a replay produces equal events."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue


class EventKind(StrEnum):
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
    TARGET_CLAIMED = "target.claimed"
    TARGET_CONFIRMED = "target.confirmed"
    TARGET_REFUTED = "target.refuted"
    WORK_RETRIED = "work.retried"
    WORK_POISONED = "work.poisoned"
    ADVICE_WRITTEN = "advice.written"
    LEARNING_CONTINUED = "learning.continued"
    LEARNING_STEP = "learning.step"
    LEARNING_ENDED = "learning.ended"
    ALARM_RAISED = "alarm.raised"
    ALARM_CLEARED = "alarm.cleared"


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    data: Mapping[str, JsonValue]
    """Facts as JSON values; candidates appear by their number in the run."""
