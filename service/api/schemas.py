"""What clients send, and the few answers that are no records of ``speciate.ports.records``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import Path
from pydantic import AfterValidator, Field, JsonValue, StringConstraints, model_validator

from speciate.domain.ensemble import Cast
from speciate.domain.errors import NotFoundError
from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from speciate.domain.values import Slug, Value
from speciate.ports.records import Page, Record, WorkerProcess, WorkRecord

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""An id, ``slug`` (the newest version) or ``slug@version``."""


def _findable(name: str) -> str:
    if "\x00" in name or len(name) > 200:
        raise NotFoundError("nothing has such a name.")
    return name


NameInPath = Annotated[
    str, Path(description="id, slug (the newest version) or slug@version"), AfterValidator(_findable)
]
"""A name in a path: whatever cannot be a name is one that nothing has, 404."""

RunId = Annotated[UUID, Path(description="id of the run; 422 when it is no UUID")]
CandidateId = Annotated[UUID, Path(description="id of the candidate; 422 when it is no UUID")]
RolloutId = Annotated[UUID, Path(description="id of the rollout; 422 when it is no UUID")]


class ProblemSubmission(Value):
    """A problem, either as JSON or as the texts of its files.

    Attributes:
        definition: Fields of a problem, texts in place.
        toml: Text of ``problem.toml``; flaws are then reported with files and lines.
        files: Texts of the files that it names, by name.
        file: What messages call the definition.
    """

    definition: dict[str, Any] | None = None
    toml: str | None = None
    files: dict[str, str] = Field(default_factory=dict, max_length=100)
    file: str = Field(default="problem.toml", min_length=1, max_length=200)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.definition is None) == (self.toml is None):
            raise ValueError("expected either 'definition' (an object) or 'toml' (a text, with 'files')")
        return self


class ProblemSetSubmission(Value):
    """A list of problem versions to freeze under a name."""

    slug: Slug
    title: str = Field(default="", max_length=200)
    problems: tuple[Name, ...] = Field(min_length=1, max_length=10_000)


class PolicySubmission(Value):
    """A policy to register.

    Attributes:
        definition: Who is asked, and how.
        check: Whether its endpoint is looked at first, which has to serve it; what it says of the weights is kept.
    """

    definition: Policy
    check: bool = True


class RunSubmission(RunSpec):
    """A run to start.

    Attributes:
        problem: Id, slug (the newest version) or slug@version.
        policy: The same for the policy that is asked; several as an object of names and weights.
        mutator: The same for another policy that changes parents, or several, if there is one.
    """

    problem: Name
    policy: Cast
    mutator: Cast | None = None

    def spec(self) -> RunSpec:
        """Return what defines the run's course."""
        return RunSpec.model_validate(self.model_dump(include=set(RunSpec.model_fields)))


class SteeringRequest(Value):
    """Why a run is paused or cancelled; it is kept with the run."""

    reason: str | None = Field(default=None, max_length=2000)


class PingAnswer(Record):
    """A policy that can be asked."""

    policy: str
    version: int
    message: str
    seconds: float


class DiffAnswer(Record):
    """What a candidate changed in its first parent.

    Attributes:
        parent: Number of that parent; None for a program written from scratch, which then is all new.
        minimal: False where the programs are too large to be compared line by line: one block stands for another.
        diff: Unified diff; hostile text.
    """

    run_id: UUID
    number: int
    parent: int | None
    minimal: bool
    diff: str


class StrategyRecord(Record):
    """A strategy and the JSON schema of its options."""

    name: str
    description: str
    options: dict[str, JsonValue]


class WorkersAnswer(Page[WorkerProcess]):
    """The worker processes that are there, and the units of work that are leased or wait, oldest first."""

    work: tuple[WorkRecord, ...]


class HealthAnswer(Record):
    """The process is alive."""

    status: Literal["ok"] = "ok"
    version: str


class ReadyAnswer(Record):
    """The servers behind the service answer, and the schema is the newest."""

    status: Literal["ready"] = "ready"
    version: str
    postgresql: str
    redis: str
