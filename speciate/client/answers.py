"""Reading answers: a value when all is well, otherwise the error that the service raised, with the same message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import httpx
from pydantic import ValidationError

from speciate import __version__
from speciate.client.calls import Call
from speciate.domain import errors
from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError

T = TypeVar("T")

ERROR_TYPE: Final = "urn:speciate:error:"

_CLASSES: Final[tuple[type[SpeciateError], ...]] = (
    errors.NotFoundError,
    errors.ConflictError,
    errors.PreconditionFailedError,
    errors.TooLargeError,
    errors.NotAllowedError,
    errors.ForbiddenError,
    errors.QuotaExceededError,
    errors.UnavailableError,
    errors.PolicyUnavailableError,
    errors.EvaluatorUnavailableError,
    errors.ConfigurationError,
    errors.ReplayError,
)
_BY_SLUG: Final = {kind.slug: kind for kind in _CLASSES}
_BY_STATUS: Final[dict[int, type[SpeciateError]]] = {
    400: InvalidInputError,
    401: errors.NotAllowedError,
    403: errors.NotAllowedError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    412: errors.PreconditionFailedError,
    413: errors.TooLargeError,
    415: InvalidInputError,
    422: InvalidInputError,
    429: errors.UnavailableError,
}


def read_answer(call: Call[T], response: httpx.Response) -> T:
    """Return what a complete answer says.

    Raises:
        SpeciateError: The service refused; the class and the message are those that it raised.
        ConfigurationError: Something else than this service answered.
    """
    refuse_errors(response)
    try:
        return call.read(_json(response) if response.content else None)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise foreign(response, f"{place}: {first['msg']}") from None


def refuse_errors(response: httpx.Response) -> None:
    """Raise the error that an answer stands for; its body must have been read. Raises as ``read_answer`` does."""
    if response.is_success:
        return
    if response.is_redirect:
        raise foreign(response, f"a redirection to {response.headers.get('Location', 'nowhere')}")
    problem = _problem_details(response)
    if problem is None:
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise errors.UnavailableError(f"{_place(response)} answered {response.status_code} without saying why.")
        raise foreign(response, f"status {response.status_code} without problem details")
    message = str(problem.get("detail") or problem.get("title") or f"status {response.status_code}")
    slug = str(problem.get("type", "")).removeprefix(ERROR_TYPE)
    kind = _BY_SLUG.get(slug) or _BY_STATUS.get(response.status_code) or _by_class(response.status_code)
    if slug == errors.TooManyRequestsError.slug:
        raise errors.TooManyRequestsError(message, retry_after_s=_seconds(response.headers.get("Retry-After")))
    if issubclass(kind, InvalidInputError):
        raise InvalidInputError(message, flaws=_flaws(problem.get("errors")))
    raise kind(message)


def foreign(response: httpx.Response, what: str) -> errors.ConfigurationError:
    """Return the error for an answer that this service would not give."""
    return errors.ConfigurationError(
        f"{_place(response)} does not answer as Speciate {__version__} does ({what}).",
        remedy="Check SPECIATE_URL, and that client and service have the same version.",
    )


def _by_class(status: int) -> type[SpeciateError]:
    return errors.UnavailableError if status > httpx.codes.INTERNAL_SERVER_ERROR else SpeciateError


def _problem_details(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        value = json.loads(response.content)
    except ValueError:
        return None
    named = isinstance(value, dict) and str(value.get("type", "")).startswith(ERROR_TYPE)
    return value if named else None


def _flaws(entries: object) -> tuple[FieldError, ...]:
    if not isinstance(entries, list):
        return ()
    return tuple(
        FieldError(
            message=str(entry.get("message", "")),
            where=str(entry.get("where") or ""),
            file=None if entry.get("file") is None else str(entry["file"]),
            line=_number(entry.get("line")),
            column=_number(entry.get("column")),
        )
        for entry in entries
        if isinstance(entry, dict)
    )


def _seconds(value: str | None) -> float:
    return float(value) if value is not None and value.isdecimal() else 1.0


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _json(response: httpx.Response) -> Any:
    try:
        return json.loads(response.content)
    except ValueError:
        raise foreign(response, f"not JSON but {response.headers.get('Content-Type', 'nameless bytes')}") from None


def _place(response: httpx.Response) -> str:
    return str(response.request.url.copy_with(query=None, userinfo=b""))
