"""Evaluations in progress: each worker lists its long ones in Redis, in a hash of the run that expires.

An evaluation is listed when it reports a text, when it prints a line after ``_SHORT_S``, or when its lease is renewed
for the first time, so that short ones cost nothing. What Redis loses is listed again with the next renewal.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, cast
from uuid import UUID

from speciate.messaging.client_library import redis
from speciate.ports.reporting import Progress, reporting_to
from speciate.ports.work import Lease, WorkKind
from speciate.schema.runs import ActiveEvaluation

_PREFIX: Final = "speciate:active:"
_EVERY_S: Final = 0.5
_SHORT_S: Final = 2.0
_KINDS: Final = (WorkKind.EVALUATE, WorkKind.CONFIRM)


class ActiveEvaluations:
    """The long evaluations of this process; ``expiry_s`` seconds without a renewal end the listing of one."""

    def __init__(self, client: redis.Redis, *, expiry_s: float) -> None:
        self._redis, self._expiry_s = client, expiry_s
        self._tracked: dict[UUID, _Entry] = {}

    @contextlib.contextmanager
    def track(self, lease: Lease) -> Iterator[None]:
        """List an evaluation while the block lasts; other work is not listed."""
        if lease.kind not in _KINDS:
            yield
            return
        entry = self._tracked[lease.token] = _Entry(lease)
        try:
            with reporting_to(lambda progress: self._report(entry, progress)):
                yield
        finally:
            del self._tracked[lease.token]
            if entry.listed_at:
                with contextlib.suppress(redis.RedisError):
                    self._redis.hdel(_key(lease.run_id), str(lease.work_id))

    def renew(self, lease: Lease) -> None:
        """List an evaluation again, with the renewal of its lease."""
        if (entry := self._tracked.get(lease.token)) is not None:
            self._write(entry)

    def _report(self, entry: _Entry, progress: Progress) -> None:
        entry.candidate = progress.candidate
        # Without line breaks and the control characters of terminals.
        entry.text = "".join(char if char.isprintable() else " " for char in progress.text).strip()
        now = time.monotonic()
        if (progress.asked or now - entry.began >= _SHORT_S) and now - entry.listed_at >= _EVERY_S:
            self._write(entry)

    def _write(self, entry: _Entry) -> None:
        entry.listed_at = time.monotonic()
        key = _key(entry.lease.run_id)
        with contextlib.suppress(redis.RedisError):  # it is a display only
            pipe = self._redis.pipeline(transaction=False)
            pipe.hset(key, str(entry.lease.work_id), f"{time.time() + self._expiry_s} {entry.json()}")
            pipe.expire(key, round(self._expiry_s) + 1)
            pipe.execute()


class _Entry:
    """A batch, the candidate under evaluation, its last text, and when it was listed last (0: never)."""

    def __init__(self, lease: Lease) -> None:
        self.lease, self.text, self.listed_at = lease, "", 0.0
        self.candidate: int | None = None
        self.began = time.monotonic()
        self.started = datetime.now(UTC)

    def json(self) -> str:
        payload = self.lease.payload
        first = int(payload["first"] if self.lease.kind is WorkKind.EVALUATE else payload["number"])
        count = len(payload["proposals"]) if self.lease.kind is WorkKind.EVALUATE else 1
        return ActiveEvaluation(
            work_id=self.lease.work_id,
            kind=self.lease.kind.value,
            candidates=(first, first + count - 1),
            candidate=self.candidate,
            worker=f"{socket.gethostname()}, process {os.getpid()}",
            started_at=self.started,
            seconds=0.0,
            text=self.text,
        ).model_dump_json()


def active_evaluations(client: redis.Redis, run_id: UUID) -> tuple[ActiveEvaluation, ...]:
    """Return the long evaluations of a run, oldest first; raises ``redis.RedisError`` if Redis does not respond."""
    now = time.time()
    values = cast("list[bytes]", client.hvals(_key(run_id)))
    active = []
    for value in values:
        until, _, text = value.partition(b" ")
        if float(until) > now:
            entry = ActiveEvaluation.model_validate_json(text)
            active.append(entry.model_copy(update={"seconds": max(0.0, round(now - entry.started_at.timestamp(), 1))}))
    return tuple(sorted(active, key=lambda entry: entry.started_at))


def _key(run_id: UUID) -> str:
    return f"{_PREFIX}{run_id}"
