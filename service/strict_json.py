"""Reading request bodies: JSON as RFC 8259 has it, and only values that can be stored and given back unchanged.

Python's reader takes ``NaN``, lets ``1e999`` become infinite and keeps lone surrogates; PostgreSQL refuses these and
NUL characters. All of that is found here, with its place, before anything is done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar, Final

from anyio import to_thread
from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from speciate.domain.errors import FieldError, InvalidInputError, TooLargeError
from speciate.domain.unstorable import MAX_VALUES, storage_errors, values_within

_LARGE: Final = 64 << 10
"""Bytes above which a body is read in a thread: in the event loop all others would wait for it."""


class MalformedJsonError(InvalidInputError):
    """The body is not JSON."""

    slug = "malformed-json"
    title = "The body is not JSON"


class StrictRoute(APIRoute):
    """A route whose body is read strictly.

    Attributes:
        most_values: Most values of a body. FastAPI checks all of them in the event loop, where everybody waits.
    """

    most_values: ClassVar[int] = 20_000

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler behind the check of the body."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            strict = _StrictRequest(request.scope, request.receive)
            strict.most_values = self.most_values
            if await strict.body():
                _require_json(request.headers.get("content-type", ""))
                await strict.json()
            return await handle(strict)

        return checked


class LargeRoute(StrictRoute):
    """One whose body may hold a problem, which is itself checked in a thread."""

    most_values: ClassVar[int] = MAX_VALUES


class _StrictRequest(Request):
    most_values = MAX_VALUES
    _value: Any = None
    _was_read = False

    async def json(self) -> Any:
        if not self._was_read:
            body = await self.body()
            most = self.most_values
            self._value = parse(body, most) if len(body) <= _LARGE else await to_thread.run_sync(parse, body, most)
            self._was_read = True
        return self._value


def parse(body: bytes, most_values: int = MAX_VALUES) -> Any:
    """Return the JSON value of a body.

    Raises:
        MalformedJsonError: It is none.
        TooLargeError: It holds more values.
        InvalidInputError: It holds a number that is not finite, or a text that cannot be stored.
    """
    try:
        text = body.decode("utf-8-sig")
        if not values_within(text, most_values):
            raise TooLargeError(f"the body holds more than {most_values} values: items of lists and objects all count.")
        value = json.loads(text)
    except json.JSONDecodeError as error:
        flaw = FieldError(f"{error.msg}", where="body", line=error.lineno, column=error.colno)
    except UnicodeDecodeError as error:
        flaw = FieldError(f"byte {error.start} is not UTF-8", where="body")
    except (RecursionError, ValueError):
        flaw = FieldError("is nested too deep, or has a number with thousands of digits", where="body")
    else:
        require_storable(value)
        return value
    raise MalformedJsonError(f"The body is not JSON: {flaw}", flaws=(flaw,))


def require_storable(value: Any) -> None:
    """Refuse values that JSON or PostgreSQL cannot hold.

    Raises:
        InvalidInputError: There is one; the flaws name the places.
    """
    if flaws := tuple(replace(flaw, where=flaw.where or "body", line=None) for flaw in storage_errors(value)):
        raise InvalidInputError(f"The request is not valid: {flaws[0]}", flaws=flaws)


def _require_json(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HTTPException(415, "The body is not labelled as JSON: expected Content-Type: application/json.")
