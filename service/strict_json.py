"""Reading request bodies: JSON as RFC 8259 has it, and only values that can be stored and given back unchanged.

Python's reader takes ``NaN``, lets ``1e999`` become infinite and keeps lone surrogates; PostgreSQL refuses these and
NUL characters. All of that is found here, with its place, before anything is done.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from speciate.domain.errors import Flaw, InvalidInputError

MAX_DEPTH: Final = 100
"""Deepest nesting of a body."""

_MOST_FLAWS: Final = 20


class MalformedJsonError(InvalidInputError):
    """The body is not JSON."""

    slug = "malformed-json"
    title = "The body is not JSON"


class StrictRoute(APIRoute):
    """A route whose body is read strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler behind the check of the body."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            strict = _StrictRequest(request.scope, request.receive)
            if await strict.body():
                _require_json(request.headers.get("content-type", ""))
                await strict.json()
            return await handle(strict)

        return checked


class _StrictRequest(Request):
    _value: Any = None
    _was_read = False

    async def json(self) -> Any:
        if not self._was_read:
            self._value, self._was_read = parse(await self.body()), True
        return self._value


def parse(body: bytes) -> Any:
    """Return the JSON value of a body.

    Raises:
        MalformedJsonError: It is none.
        InvalidInputError: It holds a number that is not finite, or a text that cannot be stored.
    """
    try:
        value = json.loads(body)
    except json.JSONDecodeError as error:
        flaw = Flaw(f"{error.msg}", where="body", line=error.lineno, column=error.colno)
    except UnicodeDecodeError as error:
        flaw = Flaw(f"byte {error.start} is not UTF-8", where="body")
    except (RecursionError, ValueError):
        flaw = Flaw("is nested too deep, or has a number with thousands of digits", where="body")
    else:
        refuse_unfit(value)
        return value
    raise MalformedJsonError(f"The body is not JSON: {flaw}", flaws=(flaw,))


def refuse_unfit(value: Any) -> None:
    """Refuse values that JSON or PostgreSQL cannot hold.

    Raises:
        InvalidInputError: There is one; the flaws name the places.
    """
    flaws: list[Flaw] = []
    # A stack of our own: the depth of a body must not become the depth of calls.
    waiting: list[tuple[tuple[object, ...], Any]] = [((), value)]
    while waiting and len(flaws) < _MOST_FLAWS:
        path, item = waiting.pop()
        if message := _unfit(item, len(path)):
            flaws.append(Flaw(message, where=".".join(str(part) for part in path)[:500] or "body"))
        elif isinstance(item, dict):
            waiting.extend(((*path, "(key)"), key) for key in item)
            waiting.extend(((*path, key), child) for key, child in item.items())
        elif isinstance(item, list | tuple):
            waiting.extend(((*path, i), child) for i, child in enumerate(item))
    if flaws:
        raise InvalidInputError(f"The request is not valid: {flaws[0]}", flaws=tuple(flaws))


def _unfit(item: Any, depth: int) -> str | None:
    match item:
        case float() if not math.isfinite(item):
            return f"is {item}: expected a finite number"
        case str() if "\x00" in item:
            return "holds a NUL character: expected plain text"
        case str() if not item.isascii() and any("\ud800" <= c <= "\udfff" for c in item):
            return "holds half of a surrogate pair: expected Unicode text"
        case dict() | list() | tuple() if depth >= MAX_DEPTH:
            return f"is nested deeper than {MAX_DEPTH}"
        case _:
            return None


def _require_json(content_type: str) -> None:
    kind = content_type.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HTTPException(415, "The body is not labelled as JSON: expected Content-Type: application/json.")
