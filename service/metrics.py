"""Prometheus metrics: requests of this process, and gauges of the installation from PostgreSQL and Redis."""

import collections
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Final

import sqlalchemy.exc
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from sqlalchemy.pool import QueuePool

from speciate import __version__
from speciate.domain.errors import UnavailableError
from speciate.messaging.client_library import redis
from speciate.messaging.presence import present_workers
from speciate.ports.work import Queue, WorkKind
from speciate.schema.runs import WorkerProcess
from speciate.storage.access.secrets import SecretsCheck
from speciate.storage.database import connect
from speciate.storage.metrics.counters import CounterSeries, MetricFamily, read_counters
from speciate.storage.metrics.gauges import Gauges, read_gauges
from speciate.storage.stores import Stores

disable_created_metrics()  # type: ignore[no-untyped-call]

_FRESH_S: Final = 5.0
"""Seconds for which a reading of the servers is reused."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 10.0)


class ServiceMetrics:
    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "speciate_http_requests", "HTTP requests.", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "speciate_http_request_seconds",
            "Seconds until the response began.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """Record a request. ``route`` is a path template, which bounds the number of series."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def watch(self, installation: "InstallationCollector") -> None:
        self._registry.register(installation)

    def forget(self, installation: "InstallationCollector") -> None:
        """Remove the gauges of the installation and close its connection."""
        self._registry.unregister(installation)
        installation.close()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class InstallationCollector:
    """Collects gauges from the stores. ``speciate_up`` is 0 for a server that does not respond."""

    def __init__(
        self, stores: Stores, url: str, *, stall_s: float, statement_s: float = 0.0, streams: Callable[[], int]
    ) -> None:
        self._stores = stores
        self._engine = connect(url, pool_size=2, pooled=stores.direct is not stores.engine, statement_s=statement_s)
        self._stall_s = stall_s
        self._streams = streams
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._shared: tuple[Metric, ...] = ()

    def close(self) -> None:
        self._engine.dispose()

    def describe(self) -> list[Metric]:
        """Return nothing, because the metrics depend on which servers respond."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield metrics of this process and a reading of the servers that is at most some seconds old."""
        with self._lock:
            if time.monotonic() - self._read_at > _FRESH_S:
                self._shared = tuple(self._read())
                self._read_at = time.monotonic()
        yield InfoMetricFamily("speciate", "Version of the service.", value={"version": __version__})
        yield GaugeMetricFamily("speciate_streams", "Open event streams of this process.", value=self._streams())
        pool = self._stores.engine.pool
        uses = {"busy": pool.checkedout(), "idle": pool.checkedin()} if isinstance(pool, QueuePool) else {}
        yield _labelled(GaugeMetricFamily, "speciate_database_connections", "Database connections.", "use", uses)
        yield from self._shared

    def _read(self) -> Iterator[Metric]:
        up = {"postgresql": 0, "redis": 0}
        with suppress(sqlalchemy.exc.SQLAlchemyError, UnavailableError):
            yield from _of_gauges(read_gauges(self._engine, stall_s=self._stall_s))
            yield _of_sealed(replace(self._stores.secrets, _engine=self._engine, retry_for_s=0.0).check())
            up["postgresql"] = 1
        with suppress(redis.RedisError):
            yield from _of_counters(read_counters(self._stores.redis))
            yield from _of_workers(present_workers(self._stores.redis))
            up["redis"] = 1
        yield _labelled(GaugeMetricFamily, "speciate_up", "1 if the server responds.", "server", up)


def _family(
    family: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    metric = family(name, text, labels=labels)
    for values, number in samples:
        metric.add_metric(values, number)
    return metric


def _labelled(
    family: type[GaugeMetricFamily | CounterMetricFamily], name: str, text: str, label: str, values: Mapping[str, float]
) -> Metric:
    return _family(family, name, text, [label], (([key], value) for key, value in sorted(values.items())))


def _of_gauges(gauges: Gauges) -> Iterator[Metric]:
    gauge, counter = partial(_labelled, GaugeMetricFamily), partial(_labelled, CounterMetricFamily)
    yield gauge("speciate_runs", "Runs by state.", "state", gauges.runs)
    yield counter("speciate_candidates", "Committed candidates by outcome.", "outcome", gauges.candidates)
    yield counter("speciate_budget_spent", "Budget spent by all runs.", "resource", gauges.spent)
    yield gauge("speciate_budget_left", "Remaining budget of running runs.", "resource", gauges.left)
    yield CounterMetricFamily("speciate_unlocks", "Confirmed unlocks.", value=gauges.unlocks)
    yield GaugeMetricFamily("speciate_runs_stalled", "Running runs without a recent commit.", value=gauges.stalled)
    yield GaugeMetricFamily("speciate_runs_alarmed", "Running runs with an alarm.", value=gauges.alarmed)
    yield from _of_work(gauges)
    if gauges.reconciler_age_s is not None:
        text = "Seconds since the last pass of the reconciler."
        yield GaugeMetricFamily("speciate_reconciler_age_seconds", text, value=gauges.reconciler_age_s)


def _of_sealed(check: SecretsCheck) -> Metric:
    unopened = len(check.unopened)
    states = {"open": check.opened, "no_key": unopened * check.keyless, "other_key": unopened * (not check.keyless)}
    text = "Encrypted secrets by decryption state."
    return _labelled(GaugeMetricFamily, "speciate_sealed_secrets", text, "state", states)


def _of_work(gauges: Gauges) -> Iterator[Metric]:
    work = {(each.kind, each.state): each for each in gauges.work}
    # An empty queue is 0, not absent, so that alerts and autoscalers can distinguish it from a failed scrape.
    queues = [(kind.value, state) for kind in WorkKind for state in ("ready", "leased", "parked")]
    units = ((queue, work[queue].units if queue in work else 0) for queue in queues)
    ready = ((kind, work.get((kind, "ready"))) for kind in WorkKind)
    oldest = (([kind.value], each.oldest_s if each else 0.0) for kind, each in ready)
    gauge = partial(_family, GaugeMetricFamily)
    yield gauge("speciate_queue_units", "Work units of running runs.", ["kind", "state"], units)
    yield gauge("speciate_queue_oldest_seconds", "Age of the oldest waiting work unit.", ["kind"], oldest)
    overdue = sum(each.overdue for each in gauges.work)
    yield GaugeMetricFamily("speciate_leases_overdue", "Expired leases that have not been returned.", value=overdue)


def _of_counters(counters: dict[MetricFamily, list[CounterSeries]]) -> Iterator[Metric]:
    for family, series in counters.items():
        if not family.buckets:
            counter = CounterMetricFamily(family.name, family.help, labels=family.labels)
            for each in series if family.labels else series or [CounterSeries((), (0.0,))]:
                counter.add_metric(each.labels, each.counts[0])
            yield counter
            continue
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for each in series:
            buckets = list(zip((*map(str, family.buckets), "+Inf"), accumulate(each.counts), strict=True))
            histogram.add_metric(each.labels, buckets, sum_value=each.total)
        yield histogram


def _of_workers(workers: tuple[WorkerProcess, ...]) -> Iterator[Metric]:
    slots: collections.Counter[tuple[str, str]] = collections.Counter()
    for worker in workers:
        for queue in worker.queues:
            slots[queue, worker.tier] += worker.slots
    processes = (([queue.value], sum(queue.value in worker.queues for worker in workers)) for queue in Queue)
    gauge = partial(_family, GaugeMetricFamily)
    yield gauge("speciate_worker_slots", "Slots of live workers.", ["queue", "tier"], sorted(slots.items()))
    yield gauge("speciate_workers", "Live workers.", ["queue"], processes)
