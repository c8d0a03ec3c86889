"""Announce commits through Redis. Signals may be lost: the reconciler sends work again and streams poll."""

import logging
from collections.abc import Callable
from typing import Final

from kombu.exceptions import OperationalError as BrokerError

from speciate.messaging.client_library import redis
from speciate.ports.work import Commit, WorkRef

_MOST_WAITING: Final = 10_000
"""Messages in a queue to which none is sent again: each one lets a worker take any unit."""
_log = logging.getLogger(__name__)

COMMIT_CHANNEL: Final = "speciate:commits"
"""Redis channel that carries the run id of each commit, to wake event streams."""


class RedisSignals:
    """``CommitListener`` over Redis and the broker, to which ``send`` gives the message of a work unit."""

    def __init__(self, client: redis.Redis, *, send: Callable[[WorkRef], None]) -> None:
        self._redis = client
        self._send = send

    def committed(self, commit: Commit) -> None:
        """Wake event streams and send work messages."""
        if commit.last_event:
            try:
                self._redis.publish(COMMIT_CHANNEL, str(commit.run_id))
            except redis.RedisError as error:
                _log.warning("Redis does not respond, streams of run %s poll: %s", commit.run_id, error)
        for ref in commit.dispatch:
            try:
                if commit.last_event or self._redis.llen(ref.queue.value) < _MOST_WAITING:
                    self._send(ref)
            except (BrokerError, redis.RedisError, OSError) as error:
                _log.warning("the message of work %s is lost, the reconciler sends it again: %s", ref.id, error)
