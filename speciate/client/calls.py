"""Describe one request to the REST API and how its response is read."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

from pydantic import TypeAdapter

from speciate.domain.errors import NotFoundError, invalid_field
from speciate.domain.values import UNSTORABLE
from speciate.domain.visibility import VisibilityChange
from speciate.schema.base import Page, Record

PAGE_LIMIT: Final = 100
"""Page size when a client iterates over a list."""

LONG_TIMEOUT_S: Final = 150.0
"""Timeout for requests that wait for a policy endpoint, pin thousands of problems or compute a large report."""

T = TypeVar("T")
R = TypeVar("R", bound=Record)

Query = str | int | bool | UUID | StrEnum | Sequence[str] | None
"""A query parameter. A list repeats the parameter; None and an empty list omit it."""


@dataclass(frozen=True)
class ApiCall(Generic[T]):
    """A request and the reader of its response."""

    method: str
    path: str
    """Path below the base URL of the service."""
    read: Callable[[Any], T]
    """Converts the JSON value of the response. Raises ``pydantic.ValidationError`` if it does not fit."""
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    body: Any = field(default=None, repr=False)  # may contain an API key
    idempotency_key: str | None = None
    """Makes it safe to repeat a POST that spends compute."""
    timeout_s: float | None = None
    """Read timeout in seconds, or None for the default."""
    binary: bool = False
    """True if the response is no JSON: ``read`` gets its bytes."""

    @property
    def repeatable(self) -> bool:
        """True if sending the request twice has the same effect as sending it once."""
        return self.method == "GET" or self.idempotency_key is not None

    @property
    def headers(self) -> dict[str, str]:
        headers = {} if self.body is None else {"Content-Type": "application/json"}
        key = self.idempotency_key or ""
        if not (key.isascii() and key.isprintable()):
            raise invalid_field("The request", "Idempotency-Key", f"is {key!r}: expected printable ASCII characters")
        return headers if self.idempotency_key is None else {**headers, "Idempotency-Key": self.idempotency_key}

    def content(self) -> bytes | None:
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, ensure_ascii=False, allow_nan=False, default=_id_text).encode()
        except (TypeError, ValueError) as error:
            raise invalid_field("The request", "body", f"{error}: expected finite numbers and Unicode text") from None

    def at(self, cursor: str) -> Self:
        """Return the request for the page of a list that begins at ``cursor``."""
        return replace(self, query={**self.query, "cursor": cursor})


def get(path: str, model: type[T], *, timeout_s: float | None = None) -> ApiCall[T]:
    return ApiCall("GET", path, TypeAdapter(model).validate_python, timeout_s=timeout_s)


def get_page(path: str, item: type[R], **query: Query) -> ApiCall[Page[R]]:
    """Return the request for the first page of a list."""
    return ApiCall("GET", path, Page[item].model_validate, {"limit": str(PAGE_LIMIT), **_given(query)})  # type: ignore[valid-type]


def get_list(path: str, item: type[R], **query: Query) -> ApiCall[tuple[R, ...]]:
    """Return the request for a list that has only one page."""
    return ApiCall("GET", path, lambda value: Page[item].model_validate(value).items, _given(query))  # type: ignore[valid-type]


def post(
    path: str, model: type[T], body: Any = None, *, timeout_s: float | None = None, idempotency_key: str | None = None
) -> ApiCall[T]:
    read = TypeAdapter(model).validate_python
    return ApiCall("POST", path, read, body=body, idempotency_key=idempotency_key, timeout_s=timeout_s)


def patch(path: str, model: type[T], body: Any) -> ApiCall[T]:
    return ApiCall("PATCH", path, TypeAdapter(model).validate_python, body=body)


def change_visibility(path: str, change: VisibilityChange, model: type[T]) -> ApiCall[T]:
    read = TypeAdapter(model).validate_python
    if change is VisibilityChange.DELETE:
        return ApiCall("DELETE", path, read)
    return ApiCall("POST", f"{path}:{change.value}", read)


def path_segment(name: object, what: str) -> str:
    """Return a name or id encoded as one segment of a path; an empty one would address the whole list."""
    text = str(name)
    if not text or text in {".", ".."}:
        raise invalid_field(f"The {what}", what, f"is {text!r}: expected a name or an id")
    if "/" in text:  # which no name holds; a server may read it as another path
        raise NotFoundError(f"there is no {what} {text[:200]!r}.")
    return quote(text.encode("utf-8", "replace"), safe="@")


def _id_text(value: object) -> str:
    return str(value) if isinstance(value, UUID) else json.JSONEncoder().default(value)


def _given(query: Mapping[str, Query]) -> dict[str, str | list[str]]:
    return {name: _text(value) for name, value in query.items() if value is not None}


def _text(value: Query) -> str | list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(_text(item)) for item in value]
    if UNSTORABLE.search(text := str(value)):
        raise invalid_field("The request", "query", f"is not UTF-8 text, or has NUL: {text!r}")
    return text.lower() if isinstance(value, bool) else text
