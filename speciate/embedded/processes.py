"""Commands tied to the life of this process: the parent's side of the guard."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import BinaryIO

from speciate.embedded.errors import EmbeddedServerError, GuardEndedError

_GUARD = Path(__file__).with_name("guard.py")
_ANSWER_LIMIT_S = 10.0
_PRELOAD_LIMIT_S = 120.0  # a second of processor time, which a busy machine may give slowly
_PLAIN = frozenset({"HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"})
_STOP_MARGIN_S = 10.0  # for the guard's own work beyond each child's grace period


@dataclass(frozen=True)
class Preload:
    """Imports of a guard, which its forks share."""

    modules: Sequence[str]
    """Modules that read no settings, start no threads and open no files when they are imported."""
    path: Sequence[str]
    """The forks' ``sys.path``."""
    environment: Mapping[str, str]
    """Variables to set before the imports; no secrets."""


@dataclass(frozen=True)
class ChildCommand:
    """One command to run under the guard."""

    name: str
    """Unique among the children of one guard."""
    argv: Sequence[str | Path]
    """Program and arguments; must not contain secrets, because every user of the machine can read them."""
    env: Mapping[str, str] = field(repr=False)
    """Complete environment, sent in a file in memory."""
    log_file: Path
    cwd: Path = Path("/")
    user: tuple[int, int] | None = None
    """Numeric (uid, gid) to switch to, which requires root. None keeps the invoking user."""
    stop_signal: signal.Signals = signal.SIGTERM
    grace_s: float = 5.0
    """Seconds from the stop signal to SIGKILL."""
    death_signal: signal.Signals | None = None
    """Signal that the kernel sends if the guard is killed; None means the stop signal."""
    module: str | None = None
    """Module that ``argv`` runs as ``python -m MODULE``; a guard that has preloaded modules forks instead."""


@dataclass(frozen=True)
class ChildStatus:
    """Status of a child: `returncode` is None while it runs, and negative after a signal."""

    pid: int
    returncode: int | None = None

    @property
    def running(self) -> bool:
        return self.returncode is None


class GuardedProcesses(contextlib.AbstractContextManager["GuardedProcesses"]):
    """Children that end, in reverse order of their start, when this process ends: by `stop`, a signal, or kill −9.

    Not thread-safe. A copy in a forked child of this process does nothing. Methods raise `EmbeddedServerError` if the
    guard was killed; the kernel then ends its children.
    """

    def __init__(
        self,
        *,
        inherit: Sequence[int] = (),
        remove: Sequence[Path] = (),
        preload: Preload | None = None,
        users: Path | None = None,
    ) -> None:
        """Prepare the guard; `launch` or the first `start` runs it.

        Args:
            inherit: File descriptors that the guard and every child keep open, such as a lock.
            remove: Directories that the guard removes when the last child has ended.
            preload: What the guard imports for its forks.
            users: File on which each process that uses the children holds a shared lock. They outlive this process
                while another one does.
        """
        self._inherit = tuple(inherit)
        self._remove = tuple(remove)
        self._users = users
        self.kept = False
        """True if the children went on after ``stop``, for other users."""
        self._preload = preload
        self._commands: dict[str, ChildCommand] = {}
        self._status: dict[str, ChildStatus] = {}
        self._failures: dict[str, str] = {}
        self._guard: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._buffer = b""

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def guard_pid(self) -> int | None:
        return self._guard.pid if self._guard else None

    def launch(self) -> None:
        """Start the guard without children, so that it already removes `remove`; otherwise `start` does it."""
        if self._guard is not None:
            return
        flags = ["-I"] if self._preload else ["-I", "-S"]
        # Forks share the guard's memory: it holds no variable that a child may not need.
        environment = {name: value for name, value in os.environ.items() if not self._preload or name in _PLAIN}
        self._commands_to, theirs = socket.socketpair()
        with theirs:
            self._guard = subprocess.Popen(
                # -I and -S: neither the environment nor the virtualenv may slow it down or inject code.
                [sys.executable, *flags, str(_GUARD)],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                cwd="/",
                env=environment,
                pass_fds=self._inherit,
                start_new_session=True,  # Ctrl-C must not reach the guard, which stops the children in order
            )
        watch = {"op": "watch", "parent": self._owner, "inherit": self._inherit, "users": self._users}
        preload = None if self._preload is None else asdict(self._preload)
        self._send({**watch, "remove": self._remove, "preload": preload})

    def start(self, command: ChildCommand) -> int:
        """Start a child, or start it again after it ended, and return its process id; raises `EmbeddedServerError`."""
        self.poll()
        self._status.pop(command.name, None)
        self._failures.pop(command.name, None)
        limit_s = _ANSWER_LIMIT_S + (0.0 if self._preload is None else _PRELOAD_LIMIT_S)
        with _environment_file(command.env) as environment:
            spec = {name: value for name, value in vars(command).items() if name != "env"}
            self._send({"op": "start", "child": spec}, environment)
        self._wait_until(lambda: command.name in self._status or command.name in self._failures, limit_s)
        if command.name in self._failures:
            raise EmbeddedServerError(f"{command.name} could not be started: {self._failures[command.name]}")
        self._commands[command.name] = command
        return self._status[command.name].pid

    def poll(self) -> Mapping[str, ChildStatus]:
        self._receive(0.0)
        return dict(self._status)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one child, even if it runs as another user."""
        self._send({"op": "signal", "name": name, "signal": int(number)})

    def stop_child(self, name: str) -> ChildStatus:
        limit_s = self._commands[name].grace_s + _ANSWER_LIMIT_S
        self._send({"op": "stop", "name": name})
        self._wait_until(lambda: not self._status[name].running, limit_s)
        return self._status[name]

    def restart(self, name: str) -> int:
        if self.poll()[name].running:
            self.stop_child(name)
        return self.start(self._commands[name])

    def stop(self) -> bool:
        """Stop every child, last started first, and the guard; calling it again does nothing.

        Returns False if the guard was killed: its children got a signal from the kernel and may still be ending. With
        ``users`` it leaves children that others use; see ``kept``.
        """
        guard = self._guard
        if guard is None or os.getpid() != self._owner:
            return True
        assert guard.stdout is not None  # noqa: S101 - for the type checker: it was opened with a pipe
        self._commands_to.close()
        limit_s = sum(command.grace_s for command in self._commands.values()) + _STOP_MARGIN_S
        if self._users is not None:
            with contextlib.suppress(EmbeddedServerError):  # the guard has ended
                self._wait_until(lambda: self.kept, limit_s)
        if self.kept:
            guard.returncode = 0  # this process does not wait for it
        try:
            guard.wait(limit_s)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        with contextlib.suppress(EmbeddedServerError):
            while self._receive(0.0):
                pass  # the children's exit statuses
        guard.stdout.close()
        self._guard = None
        return guard.returncode == 0

    def _send(self, message: dict[str, object], file: BinaryIO | None = None) -> None:
        self.launch()
        line = json.dumps(message, default=str).encode() + b"\n"  # paths
        try:
            sent = socket.send_fds(self._commands_to, [line], [] if file is None else [file.fileno()])
            self._commands_to.sendall(line[sent:])
        except (BrokenPipeError, ConnectionResetError):
            raise GuardEndedError(f"the guard process {self.guard_pid} has ended, and its children with it") from None

    def _wait_until(self, reached: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not reached():
            left = deadline - time.monotonic()
            if left <= 0:
                raise EmbeddedServerError(f"the guard process {self.guard_pid} did not answer within {limit_s:.0f} s")
            self._receive(left)

    def _receive(self, timeout_s: float) -> bool:
        """Process the guard's events; return True if any arrived."""
        guard = self._guard
        # Not select(), which takes no descriptor beyond 1,023.
        if guard is None or guard.stdout is None or not connection.wait([guard.stdout.fileno()], timeout_s):
            return False
        received = os.read(guard.stdout.fileno(), 1 << 16)
        if not received:
            raise GuardEndedError(f"the guard process {guard.pid} has ended, and its children with it")
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        for line in lines:
            self._note(json.loads(line))
        return True

    def _note(self, event: dict[str, object]) -> None:
        match event:
            case {"event": "started", "name": str(name), "pid": int(pid)}:
                self._status[name] = ChildStatus(pid)
            case {"event": "exited", "name": str(name), "pid": int(pid), "status": int(status)}:
                self._status[name] = ChildStatus(pid, status)
            case {"event": "failed", "name": str(name), "error": str(error)}:
                self._failures[name] = error
            case {"event": "kept"}:
                self.kept = True
            case _:
                raise EmbeddedServerError(f"the guard sent an unknown event: {event}")


def _environment_file(environment: Mapping[str, str]) -> BinaryIO:
    """Return an open file without a name that holds an environment as JSON."""
    file: BinaryIO = os.fdopen(os.memfd_create("environment"), "w+b")
    file.write(json.dumps(dict(environment)).encode())
    file.flush()
    return file
