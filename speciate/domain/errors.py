"""The one error tree. A message names the thing, the place and the remedy; a candidate's failure is never here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with what a user handed in.

    Attributes:
        message: What is wrong and what was expected.
        where: Path to the value, such as ``targets.0.rule``.
        file: Name of the file that was read, when there was one.
        line: Line in that file, counted from 1.
        column: Column in that line, counted from 1.
    """

    message: str
    where: str = ""
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        head = " ".join(part for part in (place, self.where) if part)
        return f"{head}: {self.message}" if head else self.message


class SpeciateError(Exception):
    """Base of every error a caller may meet; ``slug`` is stable and ends up in the problem type of HTTP answers."""

    slug: ClassVar[str] = "error"
    title: ClassVar[str] = "Speciate could not do this"

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message if remedy is None else f"{message} {remedy}")
        self.remedy = remedy


class InvalidInputError(SpeciateError):
    """The caller's input is malformed; ``flaws`` says where and how."""

    slug = "invalid-input"
    title = "The input is not valid"

    def __init__(self, message: str, *, flaws: tuple[FieldError, ...] = (), remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.flaws = flaws


class RuleError(InvalidInputError):
    """A target's rule cannot be read; ``column`` is where reading stopped, counted from 1."""

    slug = "invalid-rule"
    title = "The rule cannot be read"

    def __init__(self, message: str, *, column: int) -> None:
        super().__init__(message)
        self.column = column


class NotFoundError(SpeciateError):
    """Nothing has this name or id."""

    slug = "not-found"
    title = "No such thing"


class ConflictError(SpeciateError):
    """The request does not fit the present state, such as resuming a finished run."""

    slug = "conflict"
    title = "The state does not allow this"


class PreconditionFailedError(ConflictError):
    """``If-Match`` named another revision than the present one."""

    slug = "precondition-failed"
    title = "The thing has changed since it was read"


class QuotaExceededError(ConflictError):
    """A project has used what it may use; the message says of what, how much, and when that ends."""

    slug = "quota-exceeded"
    title = "The project's quota is used up"


class TooLargeError(SpeciateError):
    """A program, file or body is over its limit."""

    slug = "too-large"
    title = "Too large"


class NotAllowedError(SpeciateError):
    """The caller may not do this: no token, or a wrong one."""

    slug = "unauthorized"
    title = "Not allowed"


class ForbiddenError(NotAllowedError):
    """The caller is known and may not do this."""

    slug = "forbidden"
    title = "Not allowed"


class TooManyRequestsError(SpeciateError):
    """The caller asks too often.

    Attributes:
        retry_after_s: Seconds after which the next request is answered.
    """

    slug = "too-many-requests"
    title = "Too many requests"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnavailableError(SpeciateError):
    """A part that is needed does not answer: a database, a broker, a policy endpoint."""

    slug = "unavailable"
    title = "A needed part does not answer"


class NewerRecordError(UnavailableError):
    """Something was stored by a newer version of Speciate than this process has."""

    slug = "newer-record"
    title = "A newer version wrote this"


class PolicyUnavailableError(UnavailableError):
    """The policy's endpoint did not answer, or answered what cannot be used, after bounded retries.

    Attributes:
        spent_tokens: Tokens that other requests of the same call took, which were answered.
    """

    slug = "policy-unavailable"
    title = "The policy endpoint cannot be used"
    spent_tokens: int = 0


class EvaluatorUnavailableError(UnavailableError):
    """The evaluator itself (not a candidate) cannot work: no interpreter, no temporary space, no containment."""

    slug = "evaluator-unavailable"
    title = "The evaluator cannot work"


class ConfigurationError(SpeciateError):
    """The installation or its settings do not fit together."""

    slug = "configuration"
    title = "The configuration does not work"


class ReplayError(SpeciateError):
    """A run cannot be replayed, such as one with several lanes."""

    slug = "replay"
    title = "The run cannot be replayed"
