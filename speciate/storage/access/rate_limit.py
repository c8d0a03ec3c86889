"""Limit request rates over all replicas with one number per client in Redis; without Redis nothing is limited."""

from __future__ import annotations

import logging
import time
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from speciate.messaging.client_library import redis

if TYPE_CHECKING:
    from redis.commands.core import Script

# Generic cell rate algorithm: the number is the time at which the requests so far end at the allowed rate; a burst is
# how far it may lie in the future. KEYS: the client. ARGV: microseconds of a request and of the burst, 1 to count.
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
"""Pause after Redis failed to respond, so that not every request waits for it."""

_log = logging.getLogger(__name__)


class RateLimiter:
    """Limits each client to ``rate`` requests per second, and ``burst`` at once."""

    def __init__(self, redis_url: str, *, rate: float, burst: int) -> None:
        self._redis_url = redis_url
        self._request_us = 1e6 / rate
        self._burst_us = self._request_us * burst
        self._away_until = 0.0

    @cached_property
    def _redis(self) -> redis.Redis:
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis.from_url(
            self._redis_url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )

    @cached_property
    def _take(self) -> Script:
        return self._redis.register_script(_TAKE)

    def wait_s(self, client: str, *, count: bool = True) -> float:
        """Return the seconds until a request of a client is allowed; 0 if it is now, or without Redis.

        It counts the request, unless ``count`` is False.
        """
        if time.monotonic() < self._away_until:
            return 0.0
        try:
            arguments: list[str | int] = [f"{self._request_us:.0f}", f"{self._burst_us:.0f}", int(count)]
            return cast("int", self._take(keys=[f"speciate:rate:{client}"], args=arguments)) / 1e6
        except redis.RedisError as error:
            _log.warning("requests are not limited, Redis does not respond: %s", error)
            self._away_until = time.monotonic() + _PAUSE_S
            return 0.0

    def close(self) -> None:
        if "_redis" in vars(self):
            self._redis.close()
