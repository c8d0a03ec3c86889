"""The guard: a small process between a parent and its servers, which stops them even when kill −9 ends the parent.

Run as a script, `python -I -S guard.py`; it imports no other module of Speciate, so that it starts in about 40 ms. The
parent (`processes.py`) writes JSON lines to its standard input and reads JSON lines from its standard output:

    in   {"op": "watch", "parent": pid, "inherit": [fd, ...], "remove": [directory, ...]}      first, once
         {"op": "start", "child": {name, argv, env, cwd, uid, gid, stop_signal, death_signal, grace_s, log_file}}
         {"op": "signal", "name": ..., "signal": ...}
         {"op": "stop", "name": ...}
    out  {"event": "started", "name", "pid"}
         {"event": "failed", "name", "error"}
         {"event": "exited", "name", "pid", "status"}

When its input closes or on SIGTERM, the guard stops all children, last started first. When the parent dies, it stops
them all at once. Then it removes the directories in `remove`. Each child has its own process group. If the guard itself
is killed, the kernel sends each child its `death_signal`. The guard adopts orphans of the children and ends them, too.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
_PARENT_CHECK_S = 0.5  # only where the kernel has no pidfd
_DEATH_SEEN_S = 0.1
_KILL_LIMIT_S = 5.0  # a process in an uninterruptible wait does not even end at SIGKILL


_LIBC = ctypes.CDLL(None) if _LINUX else None


def _prctl(option: int, value: int) -> None:
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


class Child:
    """One command, from its start to its exit."""

    def __init__(self, spec: dict[str, Any], inherit: list[int]) -> None:
        self.name: str = spec["name"]
        self.stop_signal: int = spec["stop_signal"]
        self.grace_s: float = spec["grace_s"]
        self.status: int | None = None
        guard = os.getpid()
        death_signal: int = spec["death_signal"]

        def tie_to_guard() -> None:
            # Runs after the change of user, which clears the death signal.
            _prctl(_PR_SET_PDEATHSIG, death_signal)
            if os.getppid() != guard:
                os._exit(1)  # the guard died before the prctl call

        switch: dict[str, Any] = {}
        if spec["uid"] is not None:
            switch = {"user": spec["uid"], "group": spec["gid"], "extra_groups": []}
        log = os.open(spec["log_file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(
                spec["argv"],
                env=spec["env"],
                cwd=spec["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=inherit,
                start_new_session=True,  # one group to kill and, where the kernel schedules sessions, to prioritize
                preexec_fn=tie_to_guard,  # noqa: PLW1509 - this process has one thread
                **switch,
            )
        finally:
            os.close(log)
        self.pid = self._process.pid

    def send(self, number: int) -> None:
        """Signal the command itself, not its group; the command handles its own children."""
        if self.status is None:
            os.kill(self.pid, number)

    def kill_group(self) -> None:
        """Kill the rest of the command's process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: only zombies remain (macOS)
            os.killpg(self.pid, signal.SIGKILL)

    def ended(self, status: int) -> None:
        """Record the exit status (negative: the signal that ended it)."""
        self.status = self._process.returncode = status


class Guard:
    """Event loop of the guard. One thread; every wait has a time limit."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}  # in start order
        self._inherit: list[int] = []
        self._remove: list[str] = []
        self._parent = os.getppid()
        self._parent_fd = _pidfd(self._parent)
        self._buffer = b""
        self._finished = False
        self._wakeup, wakeup_in = os.pipe()
        for fd in (0, 1, self._wakeup, wakeup_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._finish())
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            # A handler, not SIG_IGN: the children would inherit that.
            signal.signal(ignored, lambda *_: None)

    def run(self) -> None:
        """Serve until the input closes, SIGTERM arrives or the parent dies; then stop all children and clean up."""
        sources = [fd for fd in (0, self._wakeup, self._parent_fd) if fd is not None]
        while not self._finished:
            ready = self._wait(sources, None if self._parent_fd is not None else _PARENT_CHECK_S)
            self._reap()
            if 0 in ready:
                self._read_commands()
            if self._parent_fd in ready or os.getppid() != self._parent:
                self._finish()
        if self._orphaned():
            # Stopping one by one takes too long: the last child would still hold its port when a new service starts.
            for child in self._children.values():
                child.send(child.stop_signal)
            told = time.monotonic()
            for child in self._children.values():
                self._end(child, told)
        for child in reversed(self._children.values()):
            self._stop(child)
        self._end_orphans()
        for directory in self._remove:
            _remove_tree(directory)

    def _finish(self) -> None:
        self._finished = True

    def _orphaned(self) -> bool:
        """Return True if the parent is dead; its end of the pipe closes a moment earlier."""
        deadline = time.monotonic() + _DEATH_SEEN_S
        while os.getppid() == self._parent and (left := deadline - time.monotonic()) > 0:
            self._wait([] if self._parent_fd is None else [self._parent_fd], min(left, 0.02))
        return os.getppid() != self._parent

    def _wait(self, sources: list[int], timeout_s: float | None) -> list[int]:
        ready = select.select(sources, [], [], timeout_s)[0]
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)
        return ready

    def _read_commands(self) -> None:
        received = os.read(0, 1 << 16)
        if not received:
            self._finish()  # the parent closed the input or died
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))

    def _obey(self, command: dict[str, Any]) -> None:
        match command:
            case {"op": "watch", "parent": parent, "inherit": inherit, "remove": remove}:
                self._inherit, self._remove = inherit, remove
                if parent != self._parent:
                    self._finish()  # the parent died before it could be watched
            case {"op": "start", "child": spec}:
                self._start(spec)
            case {"op": "signal", "name": name, "signal": number}:
                self._children[name].send(number)
            case {"op": "stop", "name": name}:
                self._stop(self._children[name])
            case _:
                self._finish()

    def _start(self, spec: dict[str, Any]) -> None:
        if self._children.pop(spec["name"], None) is not None:
            self._end_orphans()  # of the previous instance, which may still hold its files
        try:
            child = Child(spec, self._inherit)
        except (OSError, subprocess.SubprocessError) as error:
            _tell(event="failed", name=spec["name"], error=str(error))
            return
        self._children[child.name] = child
        _tell(event="started", name=child.name, pid=child.pid)

    def _stop(self, child: Child) -> None:
        child.send(child.stop_signal)
        self._end(child, time.monotonic())

    def _end(self, child: Child, told: float) -> None:
        """Wait for a child after its stop signal, and kill it after its grace period."""
        if not self._ended_within(child, child.grace_s - (time.monotonic() - told)):
            child.send(signal.SIGKILL)
            child.kill_group()
            self._ended_within(child, _KILL_LIMIT_S)

    def _ended_within(self, child: Child, limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while child.status is None and (left := deadline - time.monotonic()) > 0:
            self._wait([self._wakeup], left)
            self._reap()
        return child.status is not None

    def _reap(self) -> None:
        while (pid := _ended_child()) is not None:
            child = next(
                (child for child in self._children.values() if child.pid == pid and child.status is None), None
            )
            if child is not None:
                child.kill_group()  # before reaping, so that the kernel cannot have reused the process id
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if child is not None:
                child.ended(status)
                _tell(event="exited", name=child.name, pid=pid, status=status)

    def _end_orphans(self) -> None:
        deadline = time.monotonic() + _KILL_LIMIT_S
        while (orphans := self._orphans()) and time.monotonic() < deadline:
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._wait([self._wakeup], 0.05)
            self._reap()

    def _orphans(self) -> list[int]:
        ours = {child.pid for child in self._children.values() if child.status is None}
        return [pid for pid in _processes_below(os.getpid()) if pid not in ours]


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _ended_child() -> int | None:
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended.si_pid if ended else None


def _processes_below(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def _tell(**event: Any) -> None:
    # A parent that never reads must not block the guard; a dead parent needs no events.
    with contextlib.suppress(BlockingIOError, BrokenPipeError):
        os.write(1, json.dumps(event).encode() + b"\n")


def _remove_tree(directory: str) -> None:
    for path, directories, files in os.walk(directory, topdown=False):
        for entry in (Path(path, name) for name in directories + files):
            with contextlib.suppress(OSError):
                if entry.is_dir() and not entry.is_symlink():
                    entry.rmdir()
                else:
                    entry.unlink()
    with contextlib.suppress(OSError):
        Path(directory).rmdir()


def main() -> None:
    """Become the subreaper of all future children and run the guard."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a thread of the parent may have blocked signals
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Guard().run()


if __name__ == "__main__":
    main()
