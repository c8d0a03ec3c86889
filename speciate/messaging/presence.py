"""List live workers: each announces itself in Redis every few seconds, under a key that expires."""

import logging
from typing import Final, cast

from speciate.messaging.client_library import redis
from speciate.schema.runs import WorkerProcess

WORKER_KEY_PREFIX: Final = "speciate:worker:"
ANNOUNCE_INTERVAL_S: Final = 5.0
_EXPIRY_S: Final = 16
_log = logging.getLogger(__name__)


def announce(client: redis.Redis, worker: WorkerProcess, for_s: int = _EXPIRY_S) -> None:
    """Announce a worker; repeat every ``ANNOUNCE_INTERVAL_S`` seconds."""
    try:
        client.set(WORKER_KEY_PREFIX + worker.name, worker.model_dump_json(), ex=for_s)
    except redis.RedisError as error:
        _log.warning("Redis does not respond, worker %s is not listed: %s", worker.name, error)


def withdraw(client: redis.Redis, name: str) -> None:
    try:
        client.delete(WORKER_KEY_PREFIX + name)
    except redis.RedisError as error:
        _log.warning("Redis does not respond, worker %s stays listed for %d s: %s", name, _EXPIRY_S, error)


def present_workers(client: redis.Redis) -> tuple[WorkerProcess, ...]:
    """Return the live workers, by name; raises ``redis.RedisError`` if Redis does not respond."""
    keys = sorted(client.scan_iter(match=WORKER_KEY_PREFIX + "*", count=1000))
    values = cast("list[bytes | None]", client.mget(keys)) if keys else []
    return tuple(WorkerProcess.model_validate_json(value) for value in values if value is not None)
