"""What clients send, and the few answers that are no records of ``speciate.ports.records``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import Path
from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from speciate.domain.ensemble import PolicyWeights
from speciate.domain.errors import NotFoundError
from speciate.domain.labels import Labels
from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from speciate.domain.values import Slug, Value
from speciate.policies import KINDS, policy_kind, takes_key
from speciate.policies.kind import KEY_VARIABLE_PREFIX
from speciate.ports.records.base import Page, Record
from speciate.ports.records.runs import WorkerProcess, WorkRecord

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


def _sendable(key: SecretStr) -> SecretStr:
    text = key.get_secret_value().strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("expected printable ASCII characters without blanks, which a header can carry")
    return SecretStr(text)


ApiKey = Annotated[SecretStr, Field(max_length=4096), AfterValidator(_sendable)]


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
        api_key: Key of its endpoint. It is kept sealed and never shown again; another one for the same definition
            takes its place, also for runs under way.
        check: Whether its endpoint is looked at first, which has to serve it; what it says of the weights is kept.
    """

    definition: Policy
    api_key: ApiKey | None = Field(default=None, json_schema_extra={"writeOnly": True})
    check: bool = True

    @model_validator(mode="after")
    def _key_has_a_use(self) -> Self:
        variable = self.definition.api_key_env
        if self.definition.api_key_id is not None:
            raise ValueError("definition.api_key_id is set by the service: leave it out, and send the key as 'api_key'")
        if variable is not None and not variable.startswith(KEY_VARIABLE_PREFIX):
            raise ValueError(
                f"definition.api_key_env: expected a name that begins with {KEY_VARIABLE_PREFIX}, so that no policy can"
                " name another secret of the workers; or send the key itself as 'api_key'"
            )
        if self.api_key is not None and (variable is not None or not takes_key(self.definition)):
            kinds = " and ".join(name for name in KINDS if policy_kind(name).takes_key)
            raise ValueError(f"api_key: expected only for {kinds}, and without api_key_env")
        return self


class RunSubmission(RunSpec, Labels):
    """A run to start.

    Attributes:
        problem: Id, slug (the newest version) or slug@version.
        policy: The same for the policy that is asked; several as an object of names and weights.
        mutator: The same for another policy that changes parents, or several, if there is one.
    """

    problem: Name
    policy: PolicyWeights
    mutator: PolicyWeights | None = None

    def spec(self) -> RunSpec:
        """Return what defines the run's course."""
        return RunSpec.model_validate(self.model_dump(include=set(RunSpec.model_fields)))

    def labels(self) -> Labels:
        """Return what people call it."""
        return Labels.model_validate(self.model_dump(include=set(Labels.model_fields)))


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
