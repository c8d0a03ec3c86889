"""Read responses: return the value, or raise the error of the service with its class and message."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from speciate import __version__
from speciate.client.calls import ApiCall
from speciate.domain import errors
from speciate.domain.errors import FieldError, InvalidInputError, SpeciateError

T = TypeVar("T")

ERROR_TYPE: Final = "urn:speciate:error:"

_FIELD_ERRORS: Final = TypeAdapter(tuple[FieldError, ...])
_BY_SLUG: Final = {
    kind.slug: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SpeciateError)
}
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


def read_response(call: ApiCall[T], response: httpx.Response) -> T:
    """Return the result of a complete response; raises the error of the service with its class and message."""
    raise_for_error(response)
    if call.binary:
        return call.read(response.content)
    try:
        return call.read(_json(response) if response.content else None)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the response"
        raise unexpected_response(response, f"{place}: {first['msg']}") from None


def raise_for_error(response: httpx.Response) -> None:
    """Raise the error of a response whose body has been read."""
    if response.is_success:
        return
    if response.is_redirect:
        raise unexpected_response(response, f"a redirect to {response.headers.get('Location', 'an unknown address')}")
    status, problem = response.status_code, _problem_details(response)
    if problem is None:
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise errors.UnavailableError(f"{_place(response)} responded with status {status} and no problem details.")
        raise unexpected_response(response, f"status {status} without problem details")
    message = str(problem.get("detail") or problem.get("title") or f"status {status}")
    slug = str(problem.get("type", "")).removeprefix(ERROR_TYPE)
    if slug == errors.TooManyRequestsError.slug:
        wait = response.headers.get("Retry-After", "")
        raise errors.TooManyRequestsError(message, retry_after_s=float(wait) if wait.isdecimal() else 1.0)
    unknown = errors.UnavailableError if status > httpx.codes.INTERNAL_SERVER_ERROR else SpeciateError
    kind = _BY_SLUG.get(slug) or _BY_STATUS.get(status) or unknown
    if issubclass(kind, InvalidInputError):
        raise InvalidInputError(message, field_errors=_field_errors(problem.get("errors")))
    raise kind(message)


def read_line(call: ApiCall[T], line: bytes, response: httpx.Response) -> T:
    try:
        return call.read(json.loads(line))
    except (ValidationError, ValueError):
        raise unexpected_response(response, "a line that is not such a record") from None


def unexpected_response(response: httpx.Response, what: str) -> errors.ConfigurationError:
    return errors.ConfigurationError(
        f"{_place(response)} does not respond like Speciate {__version__} ({what}).",
        remedy="Check SPECIATE_URL and both versions; if another program listens there, set SPECIATE_PORT.",
    )


def _problem_details(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        value = json.loads(response.content)
    except ValueError:
        return None
    return value if (isinstance(value, dict) and str(value.get("type", "")).startswith(ERROR_TYPE)) else None


def _field_errors(entries: object) -> tuple[FieldError, ...]:
    try:
        return _FIELD_ERRORS.validate_python(entries)
    except ValidationError:  # none, or those of another version
        return ()


def _json(response: httpx.Response) -> Any:
    try:
        return json.loads(response.content)
    except ValueError:
        raise unexpected_response(
            response, f"not JSON but {response.headers.get('Content-Type', 'an untyped body')}"
        ) from None


def _place(response: httpx.Response) -> str:
    return str(response.request.url.copy_with(query=None, userinfo=b""))
