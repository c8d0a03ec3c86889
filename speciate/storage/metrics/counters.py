"""Sum the workers' counters and timings in Redis, so that every API replica exports the totals.

A process adds up in memory and sends once a second; counts that cannot be sent wait for the next second. Redis may lose
the totals: Prometheus handles the reset of a counter, and nothing else depends on them.
"""

import logging
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from speciate.messaging.client_library import redis

_KEY: Final = "speciate:metrics"
_POLICIES: Final = "speciate:metrics:policies"
MAX_POLICIES: Final = 100
"""Policies counted by name; further ones count as ``other``, which bounds the size of a scrape."""
OTHER: Final = "other"
_SEND_S: Final = 1.0
_SUM: Final = "sum"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A counter, or with ``buckets`` a histogram."""

    name: str
    """Name without ``_total``."""
    help: str
    labels: tuple[str, ...] = ()
    """Names of its labels; their values hold no ``|``."""
    buckets: tuple[float, ...] = ()
    """Upper bounds, in seconds."""

    def field(self, labels: tuple[str, ...], part: str = "") -> str:
        """Return the Redis hash field of a count, a bucket or a sum."""
        return "|".join((self.name, *labels, part))


_SHORT: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

EVALUATIONS: Final = MetricFamily("speciate_evaluations", "Evaluations that ran.", ("outcome", "tier"))
EVALUATION_SECONDS: Final = MetricFamily("speciate_evaluation_seconds", "Time of one evaluation.", ("tier",), _SHORT)
POLICY_SECONDS: Final = MetricFamily(
    "speciate_policy_request_seconds", "Time of one request.", ("policy", "role"), _LONG
)
POLICY_TOKENS: Final = MetricFamily(
    "speciate_policy_tokens", "Tokens of answered requests.", ("policy", "role", "part")
)
POLICY_FAILURES: Final = MetricFamily(
    "speciate_policy_failures", "Batches without a response from the policy.", ("policy",)
)
WORK: Final = MetricFamily("speciate_work_units", "Work units by result.", ("kind", "result"))
WORK_SECONDS: Final = MetricFamily("speciate_work_seconds", "Time from lease to commit of a unit.", ("kind",), _LONG)
LEASES_EXPIRED: Final = MetricFamily("speciate_leases_expired", "Leases that expired and whose work was retried.")
POISONED: Final = MetricFamily("speciate_work_poisoned", "Work units abandoned after too many attempts.")
MESSAGES_RESENT: Final = MetricFamily("speciate_messages_resent", "Work messages that were lost and sent again.")

FAMILIES: Final = (
    EVALUATIONS, EVALUATION_SECONDS, POLICY_SECONDS, POLICY_TOKENS, POLICY_FAILURES, WORK, WORK_SECONDS,
    LEASES_EXPIRED, POISONED, MESSAGES_RESENT,
)  # fmt: skip


class WorkerCounters:
    """Counters of one process, which must not fork afterwards; thread-safe."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._pending: defaultdict[str, float] = defaultdict(float)
        self._policies: dict[str, str] = {}
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def add(self, family: MetricFamily, *labels: str, by: float = 1.0) -> None:
        self._record({family.field(labels): by})

    def observe(self, family: MetricFamily, *labels: str, values: Iterable[float]) -> None:
        counts: defaultdict[str, float] = defaultdict(float)
        for value in values:
            counts[family.field(labels, str(bisect_left(family.buckets, value)))] += 1.0
            counts[family.field(labels, _SUM)] += value
        self._record(counts)

    def policy(self, slug: str) -> str:
        """Return the label of a policy: its slug, or ``other`` beyond ``MAX_POLICIES``."""
        label = self._policies.get(slug)
        if label is None:
            try:
                listed = bool(self._redis.sismember(_POLICIES, slug))
                if not listed and self._redis.scard(_POLICIES) < MAX_POLICIES:
                    self._redis.sadd(_POLICIES, slug)
                    listed = True
            except redis.RedisError:
                return OTHER
            label = self._policies[slug] = slug if listed else OTHER
        return label

    def flush(self) -> None:
        """Send the pending counts, after waiting for another thread that is sending."""
        with self._sending:
            with self._lock:
                pending, self._pending = self._pending, defaultdict(float)
            if not pending:
                return
            try:
                pipeline = self._redis.pipeline(transaction=True)
                for field, value in pending.items():
                    pipeline.hincrbyfloat(_KEY, field, value)
                pipeline.execute()
            except redis.RedisError as error:
                _log.debug("Redis does not respond, counts are kept: %s", error)
                self._record(pending)

    def close(self) -> None:
        self._stopping.set()
        self.flush()

    def _record(self, counts: dict[str, float]) -> None:
        with self._lock:
            for field, value in counts.items():
                self._pending[field] += value
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="counters", daemon=True)
                self._thread.start()

    def _send(self) -> None:
        while not self._stopping.wait(_SEND_S):
            self.flush()


@dataclass(frozen=True, slots=True)
class CounterSeries:
    labels: tuple[str, ...]
    counts: tuple[float, ...]
    """The count; for a histogram, one per bucket and one for larger values."""
    total: float = 0.0
    """Sum of a histogram's values."""


def read_counters(client: redis.Redis) -> dict[MetricFamily, list[CounterSeries]]:
    """Return all counts of the workers; raises ``redis.RedisError`` if Redis does not respond."""
    fields = cast("dict[bytes, bytes]", client.hgetall(_KEY))
    parts: dict[tuple[str, tuple[str, ...]], dict[str, float]] = defaultdict(dict)
    for field, value in fields.items():
        name, *labels, part = field.decode().split("|")
        parts[name, tuple(labels)][part] = float(value)
    series: dict[MetricFamily, list[CounterSeries]] = {family: [] for family in FAMILIES}
    for family in FAMILIES:
        for (name, values), counted in sorted(parts.items()):
            if name == family.name and len(values) == len(family.labels):
                series[family].append(_series(family, values, counted))
    return series


def _series(family: MetricFamily, labels: tuple[str, ...], counted: dict[str, float]) -> CounterSeries:
    if not family.buckets:
        return CounterSeries(labels, (counted.get("", 0.0),))
    counts = tuple(counted.get(str(i), 0.0) for i in range(len(family.buckets) + 1))
    return CounterSeries(labels, counts, counted.get(_SUM, 0.0))
