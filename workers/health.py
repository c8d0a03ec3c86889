"""Check the health of a worker of this host: ``python -m workers.health NAME``.

While Redis is unreachable a worker counts as alive: restarting it would not help.
"""

import socket
import sys

import redis

from speciate.messaging.presence import WORKER_KEY_PREFIX
from speciate.settings import load_settings


def main(name: str) -> int:
    """Return 0 if the worker announces itself, else 1."""
    url = load_settings().redis_url
    if url is None:
        return 1
    try:
        with redis.Redis.from_url(url.get_secret_value(), socket_timeout=2, socket_connect_timeout=2) as client:
            return 0 if client.exists(f"{WORKER_KEY_PREFIX}{name}@{socket.gethostname()}") else 1
    except redis.RedisError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
