"""Listen for commits on Redis, which wake the streams; without Redis they poll PostgreSQL."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast
from uuid import UUID

from speciate.messaging.client_library import redis
from speciate.messaging.signals import COMMIT_CHANNEL

_REDIS_RETRY_S: Final = 1.0
_PING_S = 15.0
"""Seconds without a commit after which the listener asks Redis for a sign of life, and waits for it."""

_log = logging.getLogger(__name__)


async def listen_for_commits(redis_url: str, wake: Callable[[UUID], None]) -> None:
    """Call ``wake`` with the id of every run that commits, until cancelled. Reconnects when Redis is unavailable."""
    from redis.asyncio import Redis

    task, unavailable = cast("asyncio.Task[None]", asyncio.current_task()), False
    while not task.cancelling():  # redis-py's `asyncio.wait_for` may swallow the exception, in Python 3.11
        try:
            async with Redis.from_url(redis_url, socket_connect_timeout=5) as client, client.pubsub() as channel:
                await channel.subscribe(COMMIT_CHANNEL)
                unavailable, answered = False, True
                while not task.cancelling():
                    message = await channel.get_message(timeout=_PING_S)
                    if message is not None:
                        answered = True
                        _forward(message, wake)
                    elif answered:
                        answered = False
                        await channel.ping()
                    else:  # the host may have vanished: reading would never fail
                        raise redis.TimeoutError(f"no answer for {_PING_S:g} s")
        except (redis.RedisError, OSError) as error:
            if not unavailable:
                _log.warning("Redis is unavailable, event streams poll PostgreSQL: %s", error)
            unavailable = True
            await asyncio.sleep(_REDIS_RETRY_S)


def log_listener_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the commit listener failed, event streams poll PostgreSQL", exc_info=error)


def _forward(message: dict[str, Any], wake: Callable[[UUID], None]) -> None:
    if message["type"] != "message":
        return
    try:
        wake(UUID(bytes(message["data"]).decode("ascii")))
    except ValueError:
        _log.warning("invalid message on Redis channel %s", COMMIT_CHANNEL)
