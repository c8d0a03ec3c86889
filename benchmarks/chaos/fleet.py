"""Process graph of production on one machine: two of API and control, workers, both servers, an inference server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from signal import SIGKILL

from speciate.cli.local_service import LocalService
from speciate.embedded.processes import ChildCommand, ChildStatus
from speciate.local_ports import find_free_port
from speciate.settings import Settings

SECOND = "api-b"
STANDBY = "control-b"
SHUTDOWN_DELAY_S = 1.0


class Fleet(LocalService):
    """A stack with second ones of API and control; each part can be killed or restarted alone, from any thread."""

    ready_timeout_s = 300.0

    def __init__(self, settings: Settings, *, drain_s: float = 3.0, learns: bool = False) -> None:
        super().__init__(settings, learns=learns)
        self._second_port = find_free_port()
        self._drain_s = drain_s
        self._lock = threading.RLock()

    @property
    def ports(self) -> dict[str, int]:
        """Port of every replica."""
        return {"api": self.settings.port, SECOND: self._second_port}

    @property
    def parts(self) -> tuple[str, ...]:
        """Everything that may be killed or restarted."""
        assert self.servers is not None
        return (*self._commands, "postgres", "valkey")

    def pid(self, part: str) -> int:
        """Process id of a part."""
        assert self.servers is not None
        with self._lock:
            return (self.poll().get(part) or self.servers.poll()[part]).pid

    def poll(self) -> Mapping[str, ChildStatus]:
        """Return the status of API, workers and inference server by name."""
        with self._lock:
            return super().poll()

    def restart_ended(self) -> list[str]:
        """Restart processes that ended; return their names."""
        with self._lock:
            return super().restart_ended()

    def kill(self, part: str) -> None:
        """Kill −9, and let ``restart_ended`` start it again."""
        os.kill(self.pid(part), SIGKILL)

    def restart(self, part: str) -> float:
        """Stop a part in order and start it again; return the seconds until it had ended."""
        assert self.servers is not None
        assert self.processes is not None
        at = time.monotonic()
        with self._lock:
            if part not in self._commands:
                self.servers.restart(part)
                return time.monotonic() - at
            self.processes.stop_child(part)
            seconds = time.monotonic() - at
            self.processes.start(self._commands[part])
            return seconds

    def _process_commands(self) -> Iterator[ChildCommand]:
        for command in super()._process_commands():
            yield command
            if command.name == "api":
                argv = [str(self._second_port) if a == str(self.settings.port) else a for a in command.argv]
                yield replace(command, name=SECOND, argv=argv, log_file=self.log_of(SECOND))
            if command.name == "control":
                argv = ["control-b@%h" if a == "control@%h" else a for a in command.argv]
                yield replace(command, name=STANDBY, argv=argv, log_file=self.log_of(STANDBY))

    def _environment(self) -> dict[str, str]:
        return super()._environment() | {
            "SPECIATE_SHUTDOWN_DELAY_S": str(SHUTDOWN_DELAY_S),
            "SPECIATE_DRAIN_S": str(self._drain_s),
        }
