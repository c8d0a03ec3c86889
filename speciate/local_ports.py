"""Ports of this machine."""

import socket
import time

from speciate.domain.errors import ConflictError


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(host: str, port: int, what: str, patience_s: float = 0.0, option: str = "--port") -> socket.socket:
    """Return a socket that listens on a port, or on a free one for port 0; wait for a port in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    deadline = time.monotonic() + patience_s
    while True:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if time.monotonic() >= deadline:
                raise ConflictError(
                    f"{what} cannot listen on {host}:{port}: {error.strerror}.",
                    remedy=f"Choose another port with {option}, or stop the process that uses it.",
                ) from None
        else:
            return listener
        time.sleep(0.1)
