"""Announce commits through Redis. Signals may be lost: the reconciler sends work again and streams poll."""

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
"""Redis channel that carries the run id of each commit, to wake event streams."""


class RedisSignals:
    """``Signals`` over Redis and the broker.

    Args:
        client: Redis.
        send: Sends the message of a work unit.
        place: Applies granted placements to the cached archive of a run.
        forget: Drops the cached archives of runs; the next reader rebuilds them.
    """

    def __init__(
        self,
        client: redis.Redis,
        *,
        send: Callable[[WorkRef], None],
        place: Callable[[UUID, Sequence[Placement]], None],
        forget: Callable[[Iterable[UUID]], None],
    ) -> None:
        self._redis = client
        self._send = send
        self._place = place
        self._forget = forget

    def committed(self, commit: Commit) -> None:
        """Update the cached archive, wake event streams and send work messages."""
        try:
            # The cache first: the worker that receives the message should see the new elites.
            self._place(commit.run_id, commit.placements)
            if commit.last_event:
                self._redis.publish(COMMIT_CHANNEL, str(commit.run_id))
        except redis.RedisError as error:
            _log.warning("Redis does not respond, its cache will be rebuilt: %s", error)
        for ref in commit.dispatch:
            try:
                self._send(ref)
            except (BrokerError, redis.RedisError, OSError) as error:
                _log.warning("the message of work %s is lost, the reconciler sends it again: %s", ref.id, error)

    def forget(self, run_ids: Iterable[UUID]) -> None:
        """Drop the cached archives of runs; the next reader rebuilds them."""
        try:
            self._forget(run_ids)
        except redis.RedisError as error:
            _log.warning("Redis does not respond, its cache will be rebuilt: %s", error)
