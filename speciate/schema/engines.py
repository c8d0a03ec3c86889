"""Records of engines: programs that propose all candidates of a run from outside the service."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from pydantic import Field, JsonValue

from speciate.domain.candidate import FailureKind
from speciate.schema.base import Record


class EngineOutcome(StrEnum):
    FINISHED = "finished"
    """The engine ended by itself or with its budget: the run completes with what it has."""
    FAILED = "failed"
    """The engine cannot go on: the run fails."""
    RELEASED = "released"
    """Its runner stopped: another one may start the engine again, which counts as no attempt."""
    LAPSED = "lapsed"
    """Its runner sent no sign of life: likewise, but it counts as an attempt."""


class EngineSession(Record):
    """A run that a runner has leased to start its engine, with all that the engine may know."""

    id: UUID
    """Id of the session: the runner needs it for every further request."""
    run_id: UUID
    attempt: int
    """Number of this attempt to finish the run, from 1."""
    lease_until: datetime
    """Time at which the run is offered to others, unless the lease is renewed."""
    engine: str
    engine_options: dict[str, JsonValue]
    seed: int
    evaluations: int | None
    """Budget of the run; None without a limit."""
    evaluations_left: int | None
    tokens: int | None
    """Budget of tokens, likewise."""
    model: str
    """Name of the model that answers."""
    problem: str
    """Name of the problem, ``slug@version``."""
    title: str
    description: str
    """Statement of the problem."""
    language: str
    seed_program: str
    """Program to begin with; empty if there is none."""
    objectives: dict[str, dict[str, float]]
    """Worse end ``low`` and better end ``high`` of each objective that is not secret; of a constraint its ``limit``."""


class EngineLease(Record):
    """State of a session after its renewal."""

    lease_until: datetime | None
    """None if the session has ended, the lease is lost or the run does not run now: stop the engine."""
    evaluations_left: int | None = None
    """Evaluations that the budget leaves besides those in flight; None without a limit."""
    reason: str = ""
    """Why the engine must stop; empty otherwise."""


class ModelAnswer(Record):
    completions: tuple[str, ...]
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str = "stop"
    """That of the last completion."""


class EngineEvaluation(Record):
    number: int
    """Number of the candidate in the run."""
    pending: bool = False
    """True if it is not evaluated yet: send the same request again."""
    score: float = 0.0
    """Declared weighted sum of the normalized objectives, or their mean, not bounded above, higher is better; a tenth
    of it if a constraint is violated, 0 for a failure. Secret objectives do not count."""
    rewards: dict[str, float] | None = None
    """Rewards by objective, in the author's units; None if the program failed."""
    failure: FailureKind | None = None
    failure_detail: str | None = None
    """Message and place of the failure. Untrusted."""
    feedback: dict[str, str] = Field(default_factory=dict)
    """Named texts of the evaluation. Untrusted."""
    duplicate_of: int | None = None
    """Number of the earlier candidate whose result it has."""
    evaluations_left: int | None = None
    """Evaluations that the budget leaves besides those in flight; None without a limit."""
