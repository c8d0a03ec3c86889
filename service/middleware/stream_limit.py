"""Limit the open event streams of one client."""

from collections import Counter
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import error_response
from service.streams import EVENT_STREAM
from speciate.domain.errors import TooManyRequestsError

MAX_STREAMS_OF_CLIENT: Final = 250
_RETRY_S: Final = 5.0


class StreamLimit:
    """Responds 429 when a client has too many open streams."""

    def __init__(self, app: ASGIApp, max_streams: int = MAX_STREAMS_OF_CLIENT) -> None:
        self._app = app
        self._max_streams = max_streams
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request. The content type of the response tells streams from other responses."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        client, counted, refused = _client(scope), False, False

        async def counting(message: Message) -> None:
            nonlocal counted, refused
            if message["type"] == "http.response.start" and is_stream(message):
                if self._open[client] >= self._max_streams:
                    refused = True
                    # An OSError, as for a disconnected client, makes the stream clean up.
                    raise _TooManyStreamsError
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
                self._open += Counter()  # drops clients without streams
        if refused:
            detail = f"this client has {self._max_streams} open streams, which is the limit. Close some of them."
            response = error_response(TooManyRequestsError(detail, retry_after_s=_RETRY_S))
            response.headers["Connection"] = "close"
            await response(scope, receive, send)


class _TooManyStreamsError(OSError):
    """The stream exceeds the limit."""


def is_stream(head: Message) -> bool:
    """Return True if a response head begins an event stream."""
    return Headers(raw=head["headers"]).get("content-type", "").startswith(EVENT_STREAM)


def _client(scope: Scope) -> str:
    principal = scope.get("state", {}).get("principal")
    if principal is not None and principal.token_id is not None:
        return str(principal.token_id)
    client = scope.get("client")
    return client[0] if client else ""
