"""Hearing of commits through Redis. Without it streams still go on, by asking PostgreSQL now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import redis
from redis.asyncio import Redis

from speciate.storage.signals import CHANNEL

RETRY_S: Final = 1.0
_log = logging.getLogger(__name__)


async def listen(redis_url: str, wake: Callable[[UUID], None]) -> None:
    """Call ``wake`` with the id of every run that commits something, until cancelled; survives that Redis is away."""
    away = False
    while True:
        try:
            async with Redis.from_url(redis_url, socket_connect_timeout=5) as client, client.pubsub() as channel:
                await channel.subscribe(CHANNEL)
                away = False
                async for message in channel.listen():
                    _pass_on(message, wake)
        except (redis.RedisError, OSError) as error:
            if not away:
                _log.warning("Redis is away, streams of events ask PostgreSQL instead: %s", error)
            away = True
        await asyncio.sleep(RETRY_S)


def report(task: asyncio.Task[None]) -> None:
    """Log why listening ended, unless it was told to."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("commits are not heard any more, streams of events ask PostgreSQL instead", exc_info=error)


def _pass_on(message: dict[str, Any], wake: Callable[[UUID], None]) -> None:
    if message["type"] != "message":
        return
    try:
        wake(UUID(bytes(message["data"]).decode("ascii")))
    except ValueError:
        _log.warning("Redis channel %s carried something that is no run", CHANNEL)
