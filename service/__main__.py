"""Serve the API: ``python -m service``."""

import argparse
import os
import sys
from contextlib import suppress
from typing import Final

import uvicorn
from fastapi import FastAPI

from service.app import create_app
from service.http_protocol import LimitedHttpProtocol
from speciate.domain.errors import SpeciateError
from speciate.http_server import HttpServer
from speciate.local_ports import listening
from speciate.settings import Settings, load_settings
from speciate.telemetry import configure_telemetry

_NOT_STARTED: Final = 3
_WRONG_SETTING: Final = 2


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit status.

    This is one process. TLS belongs to the proxy in front, and more processes are replicas behind it.
    """
    try:
        settings = load_settings()
        options = parser(settings).parse_args(arguments)
        server = HttpServer(_config(settings, options))
        with listening(options.host, options.port, "the API"):
            pass  # uvicorn would notice a port in use after the start of the application
        with suppress(KeyboardInterrupt):
            server.run()
    except SpeciateError as error:
        sys.stderr.write(f"{error}\n")
        return _WRONG_SETTING
    return 0 if server.started else _NOT_STARTED


def parser(settings: Settings) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m service", description="Serve the API, with SPECIATE_ settings.")
    parser.add_argument("--host", default=settings.host, help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=settings.port, help="port; 0 selects a free one (%(default)s)")
    parser.add_argument("--grace", type=int, default=10, help="seconds for open requests at the end (%(default)s)")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser


def _config(settings: Settings, options: argparse.Namespace) -> uvicorn.Config:
    def app() -> FastAPI:
        effective = settings.model_copy(update={"host": options.host, "port": options.port})
        configure_telemetry(effective, "speciate-api")
        return create_app(effective)

    return uvicorn.Config(
        app,
        factory=True,
        host=options.host,
        port=options.port,
        http=LimitedHttpProtocol,
        ws="none",
        workers=1,
        log_level=options.log_level,
        access_log=False,
        # Uvicorn reads there whose X-Forwarded headers count: by default, those of every process of this machine.
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,
        timeout_graceful_shutdown=options.grace,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
