"""Run an ASGI application on a real server in a thread, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

WAIT_S: Final = 60.0


@contextmanager
def serve_app(app: Callable[..., Any], **options: Any) -> Iterator[str]:
    """Serve an application on a free port of loopback until the block ends; yield its URL.

    Args:
        app: The application.
        options: Further options of uvicorn.
    """
    usual: dict[str, Any] = {"lifespan": "on", "ws": "none", "timeout_graceful_shutdown": 1}
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", **(usual | options))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, name="http")
    thread.start()
    wait_for(lambda: server.started or not thread.is_alive())
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the server does not stop"


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail after the timeout."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.005)
