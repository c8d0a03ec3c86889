"""The guard: a small process between a parent and its servers, so that nothing outlives the parent, even on kill −9.

Run as a script, `python -I -S guard.py`; it imports nothing of ours, so that it starts in some 40 ms. The parent
(`processes.py`) writes JSON lines to its standard input and reads JSON lines from its standard output:

    in   {"op": "watch", "parent": pid, "inherit": [fd, ...], "remove": [directory, ...]}      first, once
         {"op": "start", "child": {name, argv, env, cwd, uid, gid, stop_signal, death_signal, grace_s, log_file}}
         {"op": "signal", "name": ..., "signal": ...}
         {"op": "stop", "name": ...}
    out  {"event": "started", "name", "pid"}
         {"event": "failed", "name", "error"}
         {"event": "exited", "name", "pid", "status"}

It stops everything, last started first, when its input closes or on SIGTERM, and all at once when the parent dies; then
it removes the directories it was given. Each child has a process group of its own, and gets its `death_signal` from the
kernel if the guard itself is killed. Orphans of the children are adopted, and end with them.
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
            # Runs after the change of user, which would have cleared it.
            _prctl(_PR_SET_PDEATHSIG, death_signal)
            if os.getppid() != guard:
                os._exit(1)  # the guard died before the tie was made

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
                start_new_session=True,  # a group to end as one, and, where sessions are scheduled, one to rank
                preexec_fn=tie_to_guard,  # noqa: PLW1509 - this process has one thread
                **switch,
            )
        finally:
            os.close(log)
        self.pid = self._process.pid

    def send(self, number: int) -> None:
        """Signal the command itself, not its group: what it does with its own children is its affair."""
        if self.status is None:
            os.kill(self.pid, number)

    def kill_group(self) -> None:
        """End whatever is left of the command's process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: only zombies are left (macOS)
            os.killpg(self.pid, signal.SIGKILL)

    def ended(self, status: int) -> None:
        """Record the exit status (negative: the signal that ended it)."""
        self.status = self._process.returncode = status


class Guard:
    """The event loop. One thread; every wait has a bound."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}  # in the order of their start
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
        """Serve until there is a reason to stop; then stop everything and clean up."""
        sources = [fd for fd in (0, self._wakeup, self._parent_fd) if fd is not None]
        while not self._finished:
            ready = self._wait(sources, None if self._parent_fd is not None else _PARENT_CHECK_S)
            self._reap()
            if 0 in ready:
                self._read_commands()
            if self._parent_fd in ready or os.getppid() != self._parent:
                self._finish()
        if self._orphaned():
            # Nothing is in order any more, and the last to be told would still hold its port when a new service starts.
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
            self._finish()  # the parent closed it, or is gone
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
            self._end_orphans()  # of the one before, which may still hold its files
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
        """Wait for a child that was told to stop, and kill it when its time is up."""
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
                child.kill_group()  # before the reaping, while the number cannot belong to anyone else
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
    # A parent that never reads must not hold the guard up; one that is gone does not need to know.
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
    """Adopt the orphans of the children to come, and guard them."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a thread of the parent may have blocked some
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    Guard().run()


if __name__ == "__main__":
    main()
