"""Map exceptions to HTTP responses with problem details."""

import logging
import math
from http import HTTPStatus
from typing import Any, Final

import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from service.problem_details import problem_response
from speciate.domain import errors
from speciate.domain.budget import Budget
from speciate.domain.errors import FieldError, InvalidInputError, RuleError, SpeciateError, invalid
from speciate.domain.policy import Policy, Sampling
from speciate.domain.validation import own_mistakes, place_of, validation_message
from speciate.domain.values import Value
from speciate.messaging.client_library import redis

STATUSES: Final[dict[type[SpeciateError], HTTPStatus]] = {
    errors.InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.PreconditionFailedError: HTTPStatus.PRECONDITION_FAILED,
    errors.BudgetSpentError: HTTPStatus.GONE,
    errors.QuotaExceededError: HTTPStatus.FORBIDDEN,
    errors.ConflictError: HTTPStatus.CONFLICT,
    errors.ReplayError: HTTPStatus.CONFLICT,
    errors.TooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.NotAllowedError: HTTPStatus.UNAUTHORIZED,
    errors.ForbiddenError: HTTPStatus.FORBIDDEN,
    errors.TooManyRequestsError: HTTPStatus.TOO_MANY_REQUESTS,
    errors.UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.SpeciateError: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""Status of each error class. Other classes have the status of their nearest base."""

_HEADERS: Final[dict[HTTPStatus, dict[str, str]]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}
# FastAPI validates policy definitions. Problem definitions arrive as plain objects and are parsed by the route.
_MODELS: Final[dict[str, type[Value]]] = {"definition": Policy, "sampling": Sampling, "budget": Budget}
_MAX_FIELD_ERRORS: Final = 100
"""Maximum number of field errors in one response. Its message has the total."""
_log = logging.getLogger(__name__)


def install(app: FastAPI, *, with_redis: bool) -> None:
    app.add_exception_handler(SpeciateError, _domain_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    if with_redis:
        app.add_exception_handler(redis.RedisError, _redis_unavailable)
    app.add_exception_handler(sqlalchemy.exc.TimeoutError, _overloaded)
    app.add_exception_handler(sqlalchemy.exc.DataError, _rejected_by_postgres)
    app.add_exception_handler(Exception, _unexpected)


def error_response(error: SpeciateError) -> JSONResponse:
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("%s: %s", type(error).__name__, error)
    headers = _HEADERS.get(status)
    if isinstance(error, errors.TooManyRequestsError):
        headers = {"Retry-After": str(math.ceil(error.retry_after_s))}
    field_errors = _field_errors(error)[:_MAX_FIELD_ERRORS]
    return problem_response(status, error.slug, error.title, str(error), field_errors=field_errors, headers=headers)


def _field_errors(error: SpeciateError) -> tuple[FieldError, ...]:
    match error:
        case RuleError(field_errors=()):
            return (FieldError(str(error), where="rule", column=error.column),)
        case InvalidInputError():
            return error.field_errors
        case _:
            return ()


async def _domain_error(_: Request, error: Any) -> JSONResponse:
    return error_response(error)


async def _invalid(_: Request, error: Any) -> JSONResponse:
    # The message does not repeat the input, which may be large, secret or malicious.
    return error_response(invalid("The request", [_field_error(detail) for detail in own_mistakes(error.errors())]))


def _field_error(detail: dict[str, Any]) -> FieldError:
    # The first part is body, path or query. The field name implies it.
    place = place_of(detail | {"loc": detail["loc"][1:]}) or str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        model = _MODELS.get(str(detail["loc"][-2]))
        hint = ": the fields of a problem or policy belong under 'definition'" if place == "slug" else ""
        fields = hint if model is None else f": expected {', '.join(model.model_fields)}"
        return FieldError(f"is not a known field{fields}", place)
    return FieldError(validation_message(detail), place)


async def _http(_: Request, error: Any) -> JSONResponse:
    status = HTTPStatus(error.status_code)
    slug = status.phrase.lower().replace(" ", "-")
    detail = status.description if error.detail == status.phrase and status.description else error.detail
    if status in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED} and error.detail == status.phrase:
        detail = "No route has this method and path. Pages start at /; /v1/openapi.json describes the REST API."
    return problem_response(status, slug, status.phrase, detail, headers=error.headers)


async def _redis_unavailable(_: Request, error: Exception) -> JSONResponse:
    return error_response(errors.UnavailableError(f"Redis does not respond: {error}."))


async def _overloaded(_: Request, error: Exception) -> JSONResponse:
    _log.warning("no free database connection in time: %s", error)
    return error_response(errors.UnavailableError("all database connections are in use.", remedy="Retry in a moment."))


async def _rejected_by_postgres(_: Request, error: Exception) -> JSONResponse:
    # Validation happens before. A value that only PostgreSQL rejects is still an error of the client.
    _log.warning("PostgreSQL rejected a value: %s", error)
    return error_response(InvalidInputError("The request has a value that PostgreSQL cannot store."))


async def _unexpected(_: Request, __: Exception) -> JSONResponse:
    # Starlette raises the exception again after this response, so the server logs the traceback.
    return problem_response(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal",
        "Internal error",
        "The service failed to handle this request. Its log has the details.",
    )
