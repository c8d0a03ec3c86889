"""Answers that are written where they are read.

FastAPI goes to a thread for a route, and to another one to check and write down what it returned. What our stores
return is checked already, so for the routes that are asked most both happen in one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, get_type_hints

from fastapi import Response
from pydantic import BaseModel, TypeAdapter

P = ParamSpec("P")
T = TypeVar("T", bound=BaseModel)


def written(read: Callable[P, T]) -> Callable[P, Response]:
    """Have a route answer what it reads as JSON; to FastAPI and its document it looks as before."""
    adapter: TypeAdapter[Any] = TypeAdapter(get_type_hints(read)["return"])

    @wraps(read)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
        # A page is generic: this makes it one of the declared records, without looking into them.
        found = adapter.validate_python(read(*args, **kwargs), from_attributes=True)
        return Response(adapter.dump_json(found), media_type="application/json")

    return answer
