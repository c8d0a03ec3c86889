"""Send traces over OTLP if an endpoint is set; only then OpenTelemetry is imported.

A run is one trace, and its trace id is the run's id. So no context has to be propagated: every process that works for a
run knows the trace and its root span, which stands for the request that created the run.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from speciate.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_LOW_64: Final = (1 << 64) - 1
# Parents first: find_spec imports the parent of a package.
_PACKAGES: Final = ("opentelemetry", "opentelemetry.exporter", "opentelemetry.exporter.otlp", "opentelemetry.sdk")
_target: list[tuple[str, str]] = []
"""Endpoint and service name while tracing is on, else empty."""


def configure(endpoint: str | None, service: str) -> None:
    """Turn tracing on or off; a thread that starts with the first span sends the spans.

    The endpoint is OTLP over HTTP, such as ``http://collector:4318``; None turns tracing off.
    """
    _target.clear()
    _provider.cache_clear()
    if endpoint is None:
        return
    if any(importlib.util.find_spec(name) is None for name in _PACKAGES):
        raise ConfigurationError(
            "SPECIATE_OTLP_ENDPOINT is set, but OpenTelemetry is not installed.",
            remedy="Install Speciate with its extra `telemetry`, or unset SPECIATE_OTLP_ENDPOINT.",
        )
    _target.append((endpoint.rstrip("/"), service))


@contextmanager
def span(name: str, run_id: UUID | None = None, **attributes: str | int | float) -> Iterator[None]:
    """Record the block as a part of the current span, or of the trace of a run."""
    if not _target:
        yield
        return
    from opentelemetry import trace

    context = None
    if run_id is not None:
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        parent = trace.SpanContext(run_id.int, run_id.int & _LOW_64, is_remote=True, trace_flags=flags)
        context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
    with _tracer().start_as_current_span(name, context=context, attributes=attributes):
        yield


def record_request(
    name: str, seconds: float, headers: Mapping[str, str], created_run: UUID | None, **attributes: Any
) -> None:
    """Record a request that has just been answered.

    A request that created a run is the root span of the run's trace, with a link to the client's trace. Any other
    request is a span of the client's trace, which the header ``traceparent`` names.
    """
    if not _target:
        return
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    sender = TraceContextTextMapPropagator().extract(dict(headers))
    links = []
    if created_run is not None and (link := trace.get_current_span(sender).get_span_context()).is_valid:
        links.append(trace.Link(link))
    ended = time.time_ns()
    ids: Any = _provider(os.getpid()).id_generator
    ids.root_of = created_run
    try:
        booked = _tracer().start_span(
            name,
            context=None if created_run is not None else sender,
            kind=trace.SpanKind.SERVER,
            attributes=attributes,
            links=links,
            start_time=ended - int(seconds * 1e9),
        )
    finally:
        ids.root_of = None
    booked.end(ended)


def shutdown() -> None:
    """Send pending spans: for processes that end without running ``atexit`` handlers."""
    if _target and _provider.cache_info().currsize:
        _provider(os.getpid()).shutdown()


def _tracer() -> Tracer:
    return _provider(os.getpid()).get_tracer("speciate")


@cache
def _provider(_pid: int) -> TracerProvider:
    """Return the provider of this process; its thread does not survive a fork, so each process creates its own."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """Random ids, except for the root span of a run."""

        root_of: UUID | None = None

        def generate_trace_id(self) -> int:
            return super().generate_trace_id() if self.root_of is None else self.root_of.int

        def generate_span_id(self) -> int:
            return super().generate_span_id() if self.root_of is None else self.root_of.int & _LOW_64

    endpoint, service = _target[0]
    provider = TracerProvider(resource=Resource.create({"service.name": service}), id_generator=Ids())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")))
    atexit.register(provider.shutdown)
    return provider
