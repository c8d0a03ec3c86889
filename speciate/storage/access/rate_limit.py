"""How often somebody may ask, over all replicas: one number for each in Redis, and nothing where Redis is away."""

from __future__ import annotations

import logging
import time
from typing import Final, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

# GCRA: the number is the time at which all that was asked would have been asked at the allowed rate. A burst is how far
# it may lie ahead. KEYS: whose. ARGV: microseconds of one request, of the burst, and whether this one counts.
_TAKE: Final = """
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local due = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + ARGV[1]
local early = due - ARGV[2] - now
if early > 0 then return early end
if ARGV[3] == '1' then
  redis.call('SET', KEYS[1], string.format('%.0f', due), 'PX', math.ceil((due - now) / 1000) + 1)
end
return 0
"""
_TIMEOUT_S: Final = 0.2
_PAUSE_S: Final = 5.0
"""How long nobody asks a Redis that did not answer, so that requests do not wait for it one by one."""

_log = logging.getLogger(__name__)


class RateLimiter:
    """Counts requests by whose they are.

    Args:
        redis_url: Address of Redis.
        rate: Requests a second.
        burst: Requests that may come at once.
    """

    def __init__(self, redis_url: str, *, rate: float, burst: int) -> None:
        self._redis = redis.Redis.from_url(
            redis_url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        self._take = self._redis.register_script(_TAKE)
        self._request_us = 1e6 / rate
        self._burst_us = self._request_us * burst
        self._away_until = 0.0

    def wait_s(self, whose: str, *, count: bool = True) -> float:
        """Return 0 where a request may go on, else the seconds after which it may. Without Redis all may.

        Args:
            whose: Who asks.
            count: Whether this is a request; otherwise it is only looked whether one might go on.
        """
        if time.monotonic() < self._away_until:
            return 0.0
        try:
            arguments: list[str | int] = [f"{self._request_us:.0f}", f"{self._burst_us:.0f}", int(count)]
            return cast("int", self._take(keys=[f"speciate:rate:{whose}"], args=arguments)) / 1e6
        except redis.RedisError as error:
            _log.warning("requests are not limited, Redis does not answer: %s", error)
            self._away_until = time.monotonic() + _PAUSE_S
            return 0.0

    def close(self) -> None:
        """Close every connection."""
        self._redis.close()
