"""The one place where errors become answers: the tree of ``speciate.domain.errors``, and what FastAPI raises itself."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import Any, Final

import redis
import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from service.problem_details import problem
from speciate.domain import errors
from speciate.domain.budget import Budget
from speciate.domain.errors import FieldError, InvalidInputError, RuleError, SpeciateError
from speciate.domain.policy import Policy, Sampling
from speciate.domain.validation import validation_message
from speciate.domain.values import Value

STATUSES: Final[dict[type[SpeciateError], HTTPStatus]] = {
    errors.InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NotFoundError: HTTPStatus.NOT_FOUND,
    errors.PreconditionFailedError: HTTPStatus.PRECONDITION_FAILED,
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
"""Status of each error; a class that is not named has the status of its nearest base."""

_HEADERS: Final[dict[HTTPStatus, dict[str, str]]] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}
# Only a policy's definition is read by FastAPI itself; a problem's comes as it is.
_MODELS: Final[dict[str, type[Value]]] = {"definition": Policy, "sampling": Sampling, "budget": Budget}
_MOST_FLAWS: Final = 100
"""Most flaws in one answer; its text says how many there are."""
_log = logging.getLogger(__name__)


def install(app: FastAPI) -> None:
    """Have every error of an application answered as problem details."""
    app.add_exception_handler(SpeciateError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(redis.RedisError, _redis_away)
    app.add_exception_handler(sqlalchemy.exc.TimeoutError, _overloaded)
    app.add_exception_handler(sqlalchemy.exc.DataError, _refused_by_postgres)
    app.add_exception_handler(Exception, _unexpected)


def answer(error: SpeciateError) -> JSONResponse:
    """Return the answer for an error of ours."""
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("%s: %s", type(error).__name__, error)
    headers = _HEADERS.get(status)
    if isinstance(error, errors.TooManyRequestsError):
        headers = {"Retry-After": str(math.ceil(error.retry_after_s))}
    return problem(status, error.slug, error.title, str(error), flaws=_flaws(error)[:_MOST_FLAWS], headers=headers)


def _flaws(error: SpeciateError) -> tuple[FieldError, ...]:
    match error:
        case RuleError(flaws=()):
            return (FieldError(str(error), where="rule", column=error.column),)
        case InvalidInputError():
            return error.flaws
        case _:
            return ()


async def _ours(_: Request, error: Exception) -> JSONResponse:
    return answer(error) if isinstance(error, SpeciateError) else _internal()


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    # What was sent is not repeated: it may be large, secret or hostile.
    details = error.errors() if isinstance(error, RequestValidationError) else ()
    flaws = tuple(_flaw(detail) for detail in details)
    head = str(flaws[0]) if flaws else "it does not have the expected form"
    more = f" (and {len(flaws) - 1} more)" if len(flaws) > 1 else ""
    return answer(InvalidInputError(f"The request is not valid: {head}{more}", flaws=flaws))


def _flaw(detail: dict[str, Any]) -> FieldError:
    # The first part says body, path or query, which the name itself tells.
    place = ".".join(str(part) for part in detail["loc"][1:]) or str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        model = _MODELS.get(str(detail["loc"][-2]))
        known = "no such value is expected here" if model is None else f"expected {', '.join(model.model_fields)}"
        return FieldError(f"is unknown: {known}", place)
    return FieldError(validation_message(detail), place)


async def _http(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException):
        return _internal()
    status = HTTPStatus(error.status_code)
    slug = status.phrase.lower().replace(" ", "-")
    if status is HTTPStatus.NOT_FOUND and error.detail == status.phrase:  # no route has this path
        detail = "Nothing is served at this path: / leads to the dashboards, /v1/openapi.json describes the REST API."
        return problem(status, slug, status.phrase, detail, headers=error.headers)
    detail = status.description if error.detail == status.phrase and status.description else error.detail
    return problem(status, slug, status.phrase, detail, headers=error.headers)


async def _redis_away(_: Request, error: Exception) -> JSONResponse:
    return answer(errors.UnavailableError(f"Redis does not answer: {error}."))


async def _overloaded(_: Request, error: Exception) -> JSONResponse:
    _log.warning("no database connection was free in time: %s", error)
    return answer(errors.UnavailableError("every database connection is in use.", remedy="Try again in a moment."))


async def _refused_by_postgres(_: Request, error: Exception) -> JSONResponse:
    # Requests are checked before; what PostgreSQL still refuses as data is the sender's, not a fault of ours.
    _log.warning("PostgreSQL refused a value: %s", error)
    return answer(InvalidInputError("A value of the request can neither be stored nor looked up."))


async def _unexpected(_: Request, __: Exception) -> JSONResponse:
    # Starlette raises the error again after this answer, so the server logs it with its traceback.
    return _internal()


def _internal() -> JSONResponse:
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal",
        "The service failed",
        "The service failed at this request; its log says why.",
    )
