"""Parse requests strictly: known query parameters, and RFC 8259 JSON with values that PostgreSQL can store.

Python's parser accepts ``NaN``, reads ``1e999`` as infinity and keeps lone surrogates. PostgreSQL rejects these and NUL
characters. This module rejects all of them and names their place.
"""

import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar, Final

from anyio import to_thread
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from speciate.domain.errors import FieldError, InvalidInputError, TooLargeError, invalid_field
from speciate.domain.unstorable import MAX_VALUES, storage_errors, values_within

_LARGE: Final = 64 << 10
"""Body size above which parsing moves to a thread, so that it does not block the event loop."""


class MalformedJsonError(InvalidInputError, slug="malformed-json", title="The body is not JSON"):
    """The body is not JSON."""


class StrictRoute(APIRoute):
    """A route that parses its body strictly and refuses query parameters that it does not declare."""

    max_values: ClassVar[int] = 20_000

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        declared = sorted(field.alias for field in self.dependant.query_params)

        async def checked(request: Request) -> Response:
            if unknown := sorted(set(request.query_params).difference(declared)):
                expected = f"expected {', '.join(declared)}" if declared else "this path has none"
                raise invalid_field("The request", unknown[0], f"is not a query parameter: {expected}")
            require_storable(dict(request.query_params))
            strict = _StrictRequest(request.scope, request.receive)
            strict.max_values = self.max_values
            if await strict.body():
                _require_json(request.headers.get("content-type", ""))
                await strict.json()
            return await handle(strict)

        return checked


class LargeRoute(StrictRoute):
    """A route whose body may hold a problem, which is validated in a thread."""

    max_values: ClassVar[int] = MAX_VALUES


class _StrictRequest(Request):
    max_values = MAX_VALUES

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body, limit = await self.body(), self.max_values
            large = len(body) > _LARGE
            self._json = await to_thread.run_sync(parse, body, limit) if large else parse(body, limit)
        return self._json


def parse(body: bytes, max_values: int = MAX_VALUES) -> Any:
    try:
        text = body.decode("utf-8-sig")
        if not values_within(text, max_values):
            raise TooLargeError(f"the body holds more than {max_values} values. Items of lists and objects count.")
        value = json.loads(text)
    except json.JSONDecodeError as error:
        field_error = FieldError(f"{error.msg}", where="body", line=error.lineno, column=error.colno)
    except UnicodeDecodeError as error:
        field_error = FieldError(f"byte {error.start} is not UTF-8", where="body")
    except (RecursionError, ValueError):
        field_error = FieldError("is nested too deeply or has a number with thousands of digits", where="body")
    else:
        require_storable(value)
        return value
    raise MalformedJsonError(f"The body is not JSON: {field_error}", field_errors=(field_error,))


def require_storable(value: Any) -> None:
    """Reject values that JSON or PostgreSQL cannot hold."""
    if field_errors := tuple(
        replace(field_error, where=field_error.where or "body", line=None) for field_error in storage_errors(value)
    ):
        raise InvalidInputError(f"The request is not valid: {field_errors[0]}", field_errors=field_errors)


def _require_json(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HTTPException(415, "Unsupported body: expected Content-Type: application/json.")
