"""Error responses as RFC 9457 problem details."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from fastapi.responses import JSONResponse

from service.middleware.headers import SECURITY_HEADERS
from speciate.domain.documented import Documented
from speciate.domain.errors import FieldError

PROBLEM_JSON: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:speciate:error:"


class FieldErrorDetails(Documented):
    message: str
    """What is wrong and what was expected."""
    where: str = ""
    """Path to the value, such as targets.0.rule."""
    label: str = ""
    """Path in words, such as target 'good', rule; empty without an index."""
    file: str | None = None
    """File name, if files were submitted."""
    line: int | None = None
    """Line in the file or the body, from 1."""
    column: int | None = None
    """Column in the line, from 1."""


class ProblemDetails(Documented):
    """An error response (RFC 9457)."""

    type: str
    """`urn:speciate:error:` followed by the stable name of the error."""
    title: str
    """Short description of the error type."""
    status: int
    detail: str
    """What failed and what to do, for people."""
    errors: tuple[FieldErrorDetails, ...] = ()
    """Invalid fields of the input."""


def problem_response(
    status: int,
    slug: str,
    title: str,
    detail: str,
    *,
    field_errors: Iterable[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    details = ProblemDetails(
        type=TYPE_PREFIX + slug,
        title=title,
        status=status,
        detail=_plain(detail),
        errors=tuple(
            FieldErrorDetails(**{name: _plain(value) for name, value in asdict(error).items()})
            for error in field_errors
        ),
    )
    return JSONResponse(
        details.model_dump(mode="json"),
        status,
        headers={**SECURITY_HEADERS, **(headers or {})},
        media_type=PROBLEM_JSON,
    )


def _plain(value: Any) -> Any:
    # A message may quote user input, and lone surrogates cannot be encoded.
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
