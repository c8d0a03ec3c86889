"""Request middleware: count, time, log and trace each request under a request id."""

import logging
import re
import time
from contextlib import suppress
from typing import Final
from uuid import UUID, uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import ServiceMetrics
from speciate.telemetry import logs, tracing

HEADER: Final = "X-Request-Id"
_USABLE: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""Request ids that clients may choose: no character that could break a log line."""

_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_log = logging.getLogger("speciate.requests")


class RequestMetrics:
    """Records metrics, a log line and a trace span for each request."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        sent_id = headers.get(HEADER, "")
        request_id = sent_id if _USABLE.fullmatch(sent_id) else uuid4().hex
        started = time.perf_counter()
        status, begun_s = 500, None

        async def begin(message: Message) -> None:
            nonlocal status, begun_s
            if message["type"] == "http.response.start":
                status, begun_s = message["status"], time.perf_counter() - started
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with logs.log_context(request=request_id) as ids:
            try:
                await self._app(scope, receive, begin)
            finally:
                seconds = time.perf_counter() - started if begun_s is None else begun_s
                self._record(scope, headers, ids, status, seconds)

    def _record(self, scope: Scope, headers: Headers, ids: dict[str, str], status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        named = scope.get("path_params", {}).get("run_id")
        # A request that worked on a run without naming one in its path has created it.
        created = ids.get("run") if named is None else None
        if named is not None:
            with suppress(ValueError):
                ids["run"] = str(UUID(str(named)))
        self._metrics.record(scope["method"], route, status, seconds)
        if scope["path"] not in _QUIET:
            level = logging.WARNING if status >= 500 else logging.INFO
            _log.log(level, "%s %s %d in %.1f ms", scope["method"], route, status, seconds * 1e3)
            tracing.record_request(
                f"{scope['method']} {route}",
                seconds,
                headers,
                None if created is None else UUID(created),
                **{"http.response.status_code": status, "speciate.request_id": ids["request"]},
            )
