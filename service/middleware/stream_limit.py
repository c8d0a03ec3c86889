"""How many streams one client may have open at once, of every kind: a process has places for a thousand."""

from __future__ import annotations

from collections import Counter
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import answer
from service.sse import MEDIA_TYPE
from speciate.domain.errors import TooManyRequestsError

MOST: Final = 250
_RETRY_S: Final = 5.0


class StreamLimit:
    """Answers 429 in place of a stream that would be one too many of its client's.

    A client is a token, and an address where there is none.

    Args:
        app: What comes after.
        most: Streams of one client.
    """

    def __init__(self, app: ASGIApp, most: int = MOST) -> None:
        self._app = app
        self._most = most
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; the head of its answer says whether it is a stream."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        client, counted, refused = _client(scope), False, False

        async def counting(message: Message) -> None:
            nonlocal counted, refused
            if message["type"] == "http.response.start" and is_stream(message):
                if self._open[client] >= self._most:
                    refused = True
                    # As a client that is gone: whoever makes the stream ends it and tidies up.
                    raise _OneTooManyError
                self._open[client] += 1
                counted = True
            await send(message)

        try:
            await self._app(scope, receive, counting)
        except Exception:
            if not refused:
                raise
        finally:
            if counted:
                self._open[client] -= 1
                self._open += Counter()  # forgets those that have none
        if refused:
            told = f"{self._most} streams of yours are open, which is the most one client may have: close some."
            response = answer(TooManyRequestsError(told, retry_after_s=_RETRY_S))
            response.headers["Connection"] = "close"
            await response(scope, receive, send)


class _OneTooManyError(OSError):
    """A stream is not begun."""


def is_stream(head: Message) -> bool:
    """Tell whether the head of an answer begins a stream of events."""
    return Headers(raw=head["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


def _client(scope: Scope) -> str:
    principal = scope.get("state", {}).get("principal")
    if principal is not None and principal.token_id is not None:
        return str(principal.token_id)
    client = scope.get("client")
    return client[0] if client else ""
