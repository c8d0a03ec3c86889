"""Valkey, for the queue and caches; it writes nothing to disk, because Speciate can rebuild all of its data."""

import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from speciate.embedded.placement import write_private
from speciate.embedded.processes import ChildCommand

NAME = "valkey"

_GRACE_S = 5.0
_PING_LIMIT_S = 1.0


@dataclass(frozen=True)
class Valkey:
    """One Valkey server: its program and its private directory."""

    program: Path
    directory: Path
    log_file: Path
    password: str

    @property
    def socket_path(self) -> Path:
        return self.directory / "valkey.sock"

    def command(self) -> ChildCommand:
        """Write the configuration with the password to a private file and return the command of the server."""
        configuration = self.directory / "valkey.conf"
        settings = {
            "port": "0",
            "unixsocket": f'"{self.socket_path}"',
            "unixsocketperm": "700",
            "requirepass": f'"{self.password}"',
            "dir": f'"{self.directory}"',
            "save": '""',
            "appendonly": "no",
            "daemonize": "no",
        }
        write_private(configuration, "".join(f"{name} {value}\n" for name, value in settings.items()))
        return ChildCommand(
            name=NAME,
            argv=[self.program, configuration],
            env={"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"},
            cwd=self.directory,
            log_file=self.log_file,
            stop_signal=signal.SIGTERM,
            grace_s=_GRACE_S,
        )

    def ready(self) -> bool:
        """Return True if the server accepts the password and answers."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PING_LIMIT_S)
            try:
                connection.connect(str(self.socket_path))
                connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2 and (more := connection.recv(256)):
                    answer += more
            except (FileNotFoundError, ConnectionError, TimeoutError):
                return False
        return answer.endswith(b"+PONG\r\n")

    def url(self) -> str:
        return f"unix://:{self.password}@{self.socket_path}"
