"""How every refusal looks: RFC 9457 problem details, always JSON, never HTML, never an internal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from service.middleware.headers import SECURITY_HEADERS
from speciate.domain.errors import FieldError

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:speciate:error:"


class FlawDetails(BaseModel):
    """One thing that is wrong with the input, and where."""

    message: str = Field(description="what is wrong and what was expected")
    where: str = Field(default="", description="path to the value, such as targets.0.rule")
    file: str | None = Field(default=None, description="name of the file, where files were submitted")
    line: int | None = Field(default=None, description="line in that file or in the body, counted from 1")
    column: int | None = Field(default=None, description="column in that line, counted from 1")


class ProblemDetails(BaseModel):
    """A refusal. ``type`` is stable; ``detail`` is for people."""

    type: str = Field(description="urn:speciate:error: followed by the stable name of the error")
    title: str
    status: int
    detail: str
    errors: tuple[FlawDetails, ...] = ()


def problem(
    status: int,
    slug: str,
    title: str,
    detail: str,
    *,
    flaws: Iterable[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return the answer that refuses a request."""
    details = ProblemDetails(
        type=TYPE_PREFIX + slug,
        title=title,
        status=status,
        detail=_plain(detail),
        errors=tuple(
            FlawDetails(
                message=_plain(f.message),
                where=_plain(f.where),
                file=None if f.file is None else _plain(f.file),
                line=f.line,
                column=f.column,
            )
            for f in flaws
        ),
    )
    return JSONResponse(
        details.model_dump(mode="json"), status, headers={**SECURITY_HEADERS, **(headers or {})}, media_type=MEDIA_TYPE
    )


def _plain(text: str) -> str:
    # A message may quote what a user sent, and lone surrogates cannot be sent back.
    return text.encode("utf-8", "replace").decode()
