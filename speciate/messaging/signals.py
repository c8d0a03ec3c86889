"""Spreading commits through Redis. All of it may be lost: the reconciler rings again and streams poll."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID

import redis
from kombu.exceptions import OperationalError as BrokerError

from speciate.ports.work import Commit, WorkRef
from speciate.search.strategy import Placement

_log = logging.getLogger(__name__)

COMMIT_CHANNEL: Final = "speciate:commits"
"""Redis channel that carries ``run_id`` of each commit, to wake streams."""


class RedisSignals:
    """``Signals`` over Redis and the broker.

    Args:
        client: Redis.
        ring: Sends a message for a unit of work.
        place: Applies granted placements to the cached archive of a run.
        forget: Drops the cached archives of runs; the next reader rebuilds them.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        ring: Callable[[WorkRef], None],
        place: Callable[[UUID, Sequence[Placement]], None],
        forget: Callable[[Iterable[UUID]], None],
    ) -> None:
        self._redis = client
        self._ring = ring
        self._place = place
        self._forget = forget

    def committed(self, commit: Commit) -> None:
        """Update the cache, ring doorbells, wake streams."""
        try:
            # The cache first: whoever answers the doorbell should see what was just found.
            self._place(commit.run_id, commit.placements)
            if commit.last_event:
                self._redis.publish(COMMIT_CHANNEL, str(commit.run_id))
        except redis.RedisError as error:
            _log.warning("Redis does not answer, its cache will be rebuilt: %s", error)
        for ref in commit.dispatch:
            try:
                self._ring(ref)
            except (BrokerError, redis.RedisError, OSError) as error:
                _log.warning("doorbell of work %s is lost, the reconciler rings again: %s", ref.id, error)

    def forget(self, run_ids: Iterable[UUID]) -> None:
        """Have the caches of runs rebuilt by their next reader."""
        try:
            self._forget(run_ids)
        except redis.RedisError as error:
            _log.warning("Redis does not answer, its cache will be rebuilt: %s", error)
