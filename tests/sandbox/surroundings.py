"""Targets outside the sandbox: files, sockets and processes open to every user."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from tests.sandbox.arenas import MARK, Arena

TEXT = "as before"


class Surroundings:
    """Files, sockets and a process, all of them open to every user.

    Attributes:
        outside: Folder with a file ``text``, in the directory for temporary files.
        shown: Another one, among the packages of Python, where contained processes may read.
        listeners: Sockets that must receive no connection or datagram, by name.
    """

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self.outside = self._folder(tempfile.gettempdir())
        # Where Python is another user's, nothing can be put beside it: a test says so.
        self.shown = self._folder(sys.prefix if os.access(sys.prefix, os.W_OK) else tempfile.gettempdir())
        self.listeners = {
            "tcp": self._listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "udp": self._listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "abstract": self._listener(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{MARK}-stream"),
            "abstract datagrams": self._listener(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{MARK}-datagram"),
            "named": self._listener(socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "stream")),
            "shown": self._listener(socket.AF_UNIX, socket.SOCK_STREAM, str(self.shown / "stream")),
            "shown datagrams": self._listener(socket.AF_UNIX, socket.SOCK_DGRAM, str(self.shown / "datagram")),
        }
        for path in (*self.outside.iterdir(), *self.shown.iterdir()):
            path.chmod(0o666)
        self._before = self._state()

    def seen_by(self, arena: Arena) -> dict[str, Any]:
        """Return the names of all targets, as attacks receive them."""
        return {
            "outside": str(self.outside),
            "shown": str(self.shown),
            "worker": arena.pid,
            "zygote": min(arena.zygotes()),
            "mark": MARK,
            "addresses": {name: _address(listener) for name, listener in self.listeners.items()},
        }

    def assert_untouched(self) -> None:
        """Fail if a file has changed, or anything has arrived at a socket."""
        assert self._state() == self._before
        for name, listener in self.listeners.items():
            assert not arrived(listener), name

    def restore(self) -> None:
        """Forget what has arrived and make the files as they were, after attacks that were let through."""
        for listener in self.listeners.values():
            while arrived(listener):
                pass
        for folder in (self.outside, self.shown):
            for path in folder.iterdir():
                if path.name not in ("stream", "datagram"):
                    path.unlink()
            self._fill(folder)
        self._before = self._state()

    def close(self) -> None:
        """Remove everything."""
        self._undo.close()

    def _folder(self, place: str) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=f"{MARK}-", dir=place))
        self._undo.callback(shutil.rmtree, folder)
        folder.chmod(0o777)
        self._fill(folder)
        return folder

    def _fill(self, folder: Path) -> None:
        (folder / "text").write_text(TEXT)
        (folder / "text").chmod(0o666)

    def _listener(self, family: int, kind: int, address: Any) -> socket.socket:
        listener = self._undo.enter_context(socket.socket(family, kind))
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen()
        listener.setblocking(False)
        return listener

    def _state(self) -> list[object]:
        files = [path for folder in (self.outside, self.shown) for path in sorted(folder.iterdir())]
        return [
            (str(p), s.st_mode, s.st_uid, s.st_gid, s.st_size, s.st_mtime_ns, s.st_nlink, os.listxattr(p))
            for p in files
            for s in (p.lstat(),)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def arrived(listener: socket.socket) -> bool:
    """Return True if a connection or datagram arrived, and reset."""
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(100)
    except BlockingIOError:
        return False
    return True


def victim(user: int) -> subprocess.Popen[bytes]:
    """Start a process of a user that does nothing."""
    return subprocess.Popen(["sleep", "1000"], user=user if user != os.geteuid() else None)


def _address(listener: socket.socket) -> Any:
    address = listener.getsockname()
    return address.decode() if isinstance(address, bytes) else [*address] if isinstance(address, tuple) else address
