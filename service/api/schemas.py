"""Request bodies, path parameters, and responses that are not records of ``speciate.schema``."""

from typing import Annotated, Any, Literal, Self, TypeVar
from uuid import UUID

from fastapi import Header, Path, Query
from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from speciate.domain.declaration import DeclarationState
from speciate.domain.ensemble import PolicyWeights
from speciate.domain.errors import InvalidFieldError
from speciate.domain.labels import Labels
from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedRequest
from speciate.domain.values import MAX_REASON, WORD, Digested, Slug, Value
from speciate.domain.visibility import Visibility
from speciate.policies import KINDS, policy_kind, takes_key
from speciate.policies.kind import KEY_VARIABLE_PREFIX
from speciate.schema.base import Page, Record
from speciate.schema.runs import WorkerProcess, WorkRecord

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""An id, ``slug`` (the newest version) or ``slug@version``."""


NameInPath = Annotated[str, Path(description="Id, `slug` (the newest version) or `slug@version`.")]
"""A name in a path. Malformed names are reported as missing (404)."""

RunId = Annotated[UUID, Path(description="Id of the run. A malformed id gives 422.")]
CandidateId = Annotated[UUID, Path(description="Id of the candidate. A malformed id gives 422.")]
RolloutId = Annotated[UUID, Path(description="Id of the rollout. A malformed id gives 422.")]


IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=WORD,
        description="Repeating a request with the same key returns the object created first."
        " A different request with the same key gives 409.",
    ),
]
VisibilityFilter = Annotated[Visibility, Query(description="List visible, archived or deleted objects, or all.")]
DeclarationStateFilter = Annotated[DeclarationState | None, Query(description="Limit to a state.")]


def _sendable(key: SecretStr) -> SecretStr:
    text = key.get_secret_value().strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("expected printable ASCII characters without spaces")
    return SecretStr(text)


ApiKey = Annotated[SecretStr, Field(max_length=4096), AfterValidator(_sendable)]


class ProblemSubmission(Value):
    """A problem, either as JSON or as the text of its files."""

    definition: dict[str, Any] | None = None
    """Fields of a problem, with file contents inline."""
    toml: str | None = None
    """Text of ``problem.toml``. Errors then name files and lines."""
    files: dict[str, str] = Field(default_factory=dict, max_length=100)
    """Contents of the files that it references, by name."""
    file: str = Field(default="problem.toml", min_length=1, max_length=200)
    """Name of the definition in error messages."""
    check: bool = False
    """Score the seed program on a worker first, and refuse the problem if that fails. The request waits for the result,
    two minutes at most."""

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.definition is None) == (self.toml is None):
            raise ValueError("expected either 'definition' (an object) or 'toml' (a string, with 'files')")
        return self


class ProblemSetSubmission(Value):
    """A list of problem versions to freeze under a name."""

    slug: Slug
    title: str = Field(default="", max_length=200)
    """One line for people."""
    problems: tuple[Name, ...] = Field(min_length=1, max_length=10_000)
    """Ids or names of the problem versions, each once."""


class PolicySubmission(Value):
    definition: Policy
    api_key: ApiKey | None = Field(default=None, json_schema_extra={"writeOnly": True})
    """API key of its endpoint. Stored encrypted and never returned. A new key for the same definition replaces the old
    one, also for running runs."""
    check: bool = True
    """Contact the endpoint first. The request fails unless the endpoint serves the policy; the weights that the
    endpoint reports are recorded."""

    @model_validator(mode="after")
    def _key_has_a_use(self) -> Self:
        variable = self.definition.api_key_env
        if self.definition.api_key_id is not None:
            raise InvalidFieldError(
                "definition.api_key_id", "is set by the service: omit it and send the key as 'api_key'"
            )
        if variable is not None and not variable.startswith(KEY_VARIABLE_PREFIX):
            raise InvalidFieldError(
                "definition.api_key_env",
                f"expected a name that begins with {KEY_VARIABLE_PREFIX}, so that policies"
                " cannot read other secrets of the workers. Alternatively send the key as 'api_key'",
            )
        if self.api_key is not None and (variable is not None or not takes_key(self.definition)):
            kinds = " and ".join(name for name in KINDS if policy_kind(name).takes_key)
            raise InvalidFieldError("api_key", f"expected only for {kinds}, and without api_key_env")
        return self


V = TypeVar("V", bound=Value)


class RunSubmission(RunSpec, Labels, SeedRequest, Digested):
    omitted_at_default = RunSpec.omitted_at_default | {"estimate"}

    problem: Name
    """Id, ``slug`` (the newest version) or ``slug@version`` of the problem."""
    policy: PolicyWeights
    """Id or name of the policy, or an ensemble as an object of names and weights."""
    mutator: PolicyWeights | None = None
    """Another policy or ensemble that changes parents."""
    estimate: bool = False
    """True to estimate first what the run will spend, and to keep the estimate with it."""

    def part(self, model: type[V]) -> V:
        """Return the fields of the request that form a ``RunSpec``, ``Labels`` or ``SeedRequest``."""
        return model.model_validate(self.model_dump(include=set(model.model_fields)))


class SteeringRequest(Value):
    """Reason for pausing or cancelling."""

    reason: str | None = Field(default=None, max_length=MAX_REASON)
    """Text that is stored with the object."""


class PingResponse(Record):
    """Result of contacting a policy endpoint."""

    policy: str
    version: int
    message: str
    """What the endpoint returned, in one line."""
    verdict: str | None
    """What its log-probabilities say of its weights: `ok`, or `unchanged` by the training; null if not compared."""
    seconds: float


class CandidateDiff(Record):
    """Changes of a candidate relative to its first parent."""

    run_id: UUID
    number: int
    """Number of the candidate in its run."""
    parent: int | None
    """Number of the parent. Null for a program written from scratch, whose diff is the whole program."""
    minimal: bool
    """False if the programs are too large to compare line by line; the diff then replaces one block."""
    diff: str
    """Unified diff. Untrusted text."""


class WorkersPage(Page[WorkerProcess]):
    """Live worker processes and the work units in flight."""

    work: tuple[WorkRecord, ...]
    """Leased and waiting work units, oldest first."""


class SigningKeyResponse(Record):
    """The key pair of the service."""

    public_key: str
    """Ed25519, 64 hexadecimal digits. A new SPECIATE_SECRET_KEY changes it."""


class HealthResponse(Record):
    """The process is alive."""

    status: Literal["ok"] = "ok"
    version: str


class ReadinessResponse(Record):
    """The process can serve requests: PostgreSQL responds, and the database schema is current."""

    status: Literal["ready"] = "ready"
    version: str
    postgresql: str
    redis: str
    """`ok`, or the reason why it does not respond: runs wait meanwhile."""
