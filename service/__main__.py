"""Serve the API: ``python -m service --host 0.0.0.0 --port 8420``. Settings are ``SPECIATE_…`` variables."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import Final

import uvicorn

from service.http_protocol import LimitedHttpProtocol
from speciate.http_server import HttpServer

_NOT_STARTED: Final = 3


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit status.

    Clients and proxies keep connections, so limits on heads and idle time belong to the protocol of every API process.
    """
    parser = argparse.ArgumentParser(prog="python -m service", description="Serve the API.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8420, help="port to listen on; 0 selects a free one (%(default)s)")
    parser.add_argument("--grace", type=int, default=10, help="seconds for open requests at the end (%(default)s)")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    options = parser.parse_args(arguments)
    config = uvicorn.Config(
        "service.app:create_app",
        factory=True,
        host=options.host,
        port=options.port,
        http=LimitedHttpProtocol,
        ws="none",
        log_level=options.log_level,
        access_log=False,
        timeout_graceful_shutdown=options.grace,
    )
    server = HttpServer(config)
    with suppress(KeyboardInterrupt):
        server.run()
    return 0 if server.started else _NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
