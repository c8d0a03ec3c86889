"""What is asked of the service, as values: both clients send the same calls and differ only in how they wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import quote
from uuid import UUID

from pydantic import TypeAdapter

from speciate.domain.errors import FieldError, InvalidInputError
from speciate.ports.records.base import Page, Record

PAGE_LIMIT: Final = 100
"""Items that are asked for at once when a list is walked."""

T = TypeVar("T")
R = TypeVar("R", bound=Record)

Query = str | int | bool | UUID | StrEnum | Sequence[str] | None
"""A parameter; of a list each item is sent, and nothing of an empty one."""


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request and how its answer is read.

    Attributes:
        method: HTTP method.
        path: Path below the service's address.
        read: Makes the result of the answer's JSON value; raises ``pydantic.ValidationError`` when it does not fit.
        query: Query parameters.
        body: JSON value that is sent.
        idempotency_key: Makes a POST that spends something safe to repeat.
        timeout_s: Seconds the answer may take, where that is more than usual.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    body: Any = field(default=None, repr=False)  # it may hold a key
    idempotency_key: str | None = None
    timeout_s: float | None = None

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no more than sending it once."""
        return self.method == "GET" or self.idempotency_key is not None

    @property
    def headers(self) -> dict[str, str]:
        """The headers that this call needs besides the usual ones.

        Raises:
            InvalidInputError: The idempotency key holds what no header can.
        """
        headers = {} if self.body is None else {"Content-Type": "application/json"}
        key = self.idempotency_key or ""
        if not (key.isascii() and key.isprintable()):
            flaw = FieldError(f"is {key!r}: expected printable ASCII characters", where="Idempotency-Key")
            raise InvalidInputError(f"The request is not valid: {flaw}", flaws=(flaw,))
        return headers if self.idempotency_key is None else {**headers, "Idempotency-Key": self.idempotency_key}

    def content(self) -> bytes | None:
        """Return the body as it is sent.

        Raises:
            InvalidInputError: A number in it is NaN or infinite, or a text is not Unicode: JSON has no such values.
        """
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, ensure_ascii=False, allow_nan=False).encode()
        except ValueError as error:
            flaw = FieldError(f"{error}: expected finite numbers and Unicode text", where="body")
            raise InvalidInputError(f"The request is not valid: {flaw}", flaws=(flaw,)) from None

    def at(self, cursor: str) -> Self:
        """Return the call for the page of a list that begins at ``cursor``."""
        return replace(self, query={**self.query, "cursor": cursor})


def get(path: str, model: type[T], **query: Query) -> Call[T]:
    """Return the call that reads one thing."""
    return Call("GET", path, TypeAdapter(model).validate_python, _query(query))


def walk(path: str, item: type[R], **query: Query) -> Call[Page[R]]:
    """Return the call for the first page of a list."""
    return Call("GET", path, Page[item].model_validate, _query({"limit": PAGE_LIMIT, **query}))  # type: ignore[valid-type]


def listing(path: str, item: type[R], **query: Query) -> Call[tuple[R, ...]]:
    """Return the call for a list that comes whole."""

    def read(value: Any) -> tuple[R, ...]:
        return Page[item].model_validate(value).items  # type: ignore[valid-type]

    return Call("GET", path, read, _query(query))


def post(path: str, model: type[T], body: Any = None, *, timeout_s: float | None = None) -> Call[T]:
    """Return the call that makes or changes something."""
    return Call("POST", path, TypeAdapter(model).validate_python, body=body, timeout_s=timeout_s)


def patch(path: str, model: type[T], body: Any) -> Call[T]:
    """Return the call that changes a part of something."""
    return Call("PATCH", path, TypeAdapter(model).validate_python, body=body)


def segment(name: object, what: str) -> str:
    """Return a name or id as one segment of a path.

    Raises:
        InvalidInputError: It is empty, which would name the whole list.
    """
    text = str(name)
    if not text or text in {".", ".."}:
        flaw = FieldError(f"is {text!r}: expected a name or an id", where=what)
        raise InvalidInputError(f"The {what} is not valid: {flaw}", flaws=(flaw,))
    return quote(text.encode("utf-8", "replace"), safe="@")


def _query(values: Mapping[str, Query]) -> dict[str, str | list[str]]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: Query) -> str | list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
