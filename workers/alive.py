"""``python -m workers.alive NAME``: whether the worker NAME of this host says that it is there; for health checks.

Without Redis nobody can tell, and restarting workers would not bring it back: that counts as alive.
"""

from __future__ import annotations

import socket
import sys

import redis

from speciate.settings import load_settings
from speciate.storage.presence import PREFIX


def main(name: str) -> int:
    """Return 0 when the worker is there, 1 when it is not."""
    url = load_settings().redis_url
    if url is None:
        return 1
    try:
        with redis.Redis.from_url(url.get_secret_value(), socket_timeout=2, socket_connect_timeout=2) as client:
            return 0 if client.exists(f"{PREFIX}{name}@{socket.gethostname()}") else 1
    except redis.RedisError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
