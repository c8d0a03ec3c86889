"""The error classes. A message names the object, the place and the remedy. Candidate failures are not errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from speciate.domain.charge import Charge


@dataclass(frozen=True, slots=True)
class FieldError:
    """One invalid field of a user's input."""

    message: str
    """The mistake and the expected value."""
    where: str = ""
    """Path to the value, such as ``targets.0.rule``."""
    file: str | None = None
    """Name of the file, if the input is a file."""
    line: int | None = None
    column: int | None = None
    """Column in that line, from 1."""
    label: str = ""
    """The path in words, such as ``target 'good', rule``; empty without an index."""

    @property
    def place(self) -> str:
        return self.label or self.where

    def __str__(self) -> str:
        file = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        head = " ".join(part for part in (file, self.place) if part)
        return f"{head}: {self.message}" if head else self.message


class InvalidFieldError(ValueError):
    """A mistake across the fields of a model, without a location in Pydantic; ``where`` is the path to the field."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


class SpeciateError(Exception):
    """Base of all errors for callers; ``slug`` is stable and identifies the problem type in HTTP responses."""

    slug: ClassVar[str] = "error"
    title: ClassVar[str] = "Request failed"

    def __init_subclass__(cls, *, slug: str = "", title: str = "") -> None:
        if slug:
            cls.slug, cls.title = slug, title

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        blank = "" if message.endswith("\n") else " "
        super().__init__(message if remedy is None else f"{message}{blank}{remedy}")
        self.remedy = remedy


class InvalidInputError(SpeciateError, slug="invalid-input", title="The input is not valid"):
    """The caller's input is invalid; ``field_errors`` lists the invalid fields."""

    def __init__(self, message: str, *, field_errors: tuple[FieldError, ...] = (), remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.field_errors = field_errors


def invalid(name: str, field_errors: Sequence[FieldError]) -> InvalidInputError:
    """Return the error for an input with invalid fields; its message shows the first and counts the rest."""
    more = f" (and {len(field_errors) - 1} more)" if len(field_errors) > 1 else ""
    return InvalidInputError(f"{name} is not valid: {field_errors[0]}{more}", field_errors=tuple(field_errors))


def invalid_field(name: str, where: str, message: str) -> InvalidInputError:
    return invalid(name, [FieldError(message, where)])


class RuleError(InvalidInputError, slug="invalid-rule", title="The rule cannot be parsed"):
    """A target's rule cannot be parsed; ``column`` is the position of the error, from 1."""

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(message)
        self.column = column


class NotFoundError(SpeciateError, slug="not-found", title="Not found"):
    """No object has this name or id."""


class ConflictError(SpeciateError, slug="conflict", title="The current state does not allow this"):
    """The current state does not allow the request, such as resuming an ended run."""


class PreconditionFailedError(
    ConflictError, slug="precondition-failed", title="The resource has changed since it was read"
):
    """``If-Match`` names another revision than the current one."""


class BudgetSpentError(ConflictError, slug="budget-spent", title="The budget of the run is spent"):
    """The budget of a run does not hold the request: an engine must end."""


class QuotaExceededError(ConflictError, slug="quota-exceeded", title="The project's quota is exhausted"):
    """A project has reached a quota; the message names the quota, its limit and its reset time."""


class TooLargeError(SpeciateError, slug="too-large", title="Too large"):
    """A program, file or body exceeds its limit."""


class NotAllowedError(SpeciateError, slug="unauthorized", title="Unauthorized"):
    """The request has no valid credentials."""


class ForbiddenError(NotAllowedError, slug="forbidden", title="Forbidden"):
    """The credentials are valid but lack the permission."""


class UnavailableError(SpeciateError, slug="unavailable", title="A required service does not respond"):
    """A required service does not respond: the database, the broker or a policy endpoint."""

    retry_after_s: float = 0.0
    """Least seconds until another attempt."""


class TooManyRequestsError(UnavailableError, slug="too-many-requests", title="Too many requests"):
    """The caller exceeds its request rate; the next request is accepted in ``retry_after_s`` seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NewerRecordError(UnavailableError, slug="newer-record", title="The record was written by a newer version"):
    """A record was written by a newer version of Speciate."""


class PolicyUnavailableError(UnavailableError, slug="policy-unavailable", title="The policy endpoint cannot be used"):
    """The policy's endpoint did not respond, or its response is unusable, after bounded retries."""

    spent: Charge = Charge()
    """What all requests of the same call cost, answered or not."""


class LearningError(SpeciateError, slug="learning", title="The run cannot learn"):
    """A run cannot learn from its completions; the message says why. The run goes on without learning."""


class EvaluatorUnavailableError(UnavailableError, slug="evaluator-unavailable", title="The evaluator cannot run"):
    """The evaluator itself cannot run: no interpreter, no temporary space, no isolation."""


class ConfigurationError(SpeciateError, slug="configuration", title="Invalid configuration"):
    """The installation or its settings are inconsistent."""


class ReplayError(SpeciateError, slug="replay", title="The run cannot be replayed"):
    """A run cannot be replayed, such as one with several lanes."""
