"""TCP relay in front of a server, whose network can become slow, fragmented, or silent without closing anything."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Relay:
    """A running relay.

    Attributes:
        port: Port on 127.0.0.1 that leads to the server.
        delay_s: Delay of every piece of data, in each direction.
        piece_bytes: Longest piece that is forwarded at once.
        silent: While set, nothing is forwarded, and all connections stay open.
    """

    target: str | tuple[str, int]
    port: int = 0
    delay_s: float = 0.0
    piece_bytes: int = 1 << 16
    silent: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener closes."""
        while not self.closing.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            family = socket.AF_UNIX if isinstance(self.target, str) else socket.AF_INET
            server = socket.socket(family)
            with suppress(OSError):
                server.connect(self.target)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                for at in range(0, len(data), self.piece_bytes):
                    while self.silent.is_set() and not self.closing.is_set():
                        time.sleep(0.01)
                    time.sleep(self.delay_s)
                    sink.sendall(data[at : at + self.piece_bytes])
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()


@contextmanager
def relay(target: str | os.PathLike[str] | tuple[str, int]) -> Iterator[Relay]:
    """Run a relay to a unix socket or to a host and port until the block ends."""
    made = Relay(target if isinstance(target, tuple) else os.fspath(target))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made.port = listener.getsockname()[1]
        thread = threading.Thread(target=made.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            made.closing.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
