"""The guard: a small process between a parent and its servers, which stops them even when kill −9 ends the parent.

Run as a script, `python -I -S guard.py`; it imports no other module of Speciate, so that it starts in about 40 ms. The
parent (`processes.py`) writes JSON lines to its standard input, a socket, and reads JSON lines from its output:

    in   {"op": "watch", "parent": pid, "inherit": [fd, ...], "remove": [directory, ...], "users": file or null,
          "preload": {"path": [...], "modules": [...], "environment": {...}} or null}          first, once
         {"op": "start", "child": {name, argv, cwd, user, stop_signal, death_signal, grace_s, log_file, module}}
             with a file that holds the environment; of a fork, only the fork reads it
         {"op": "signal", "name": ..., "signal": ...}
         {"op": "stop", "name": ...}
    out  {"event": "kept"}                                  in answer to a closed input, while others use the children
         {"event": "started", "name", "pid"}
         {"event": "failed", "name", "error"}
         {"event": "exited", "name", "pid", "status"}

When its input closes or on SIGTERM, the guard stops all children, last started first. When the parent dies, it stops
them all at once. Then it removes the directories in `remove`. Each child has its own process group. If the guard itself
is killed, the kernel sends each child its `death_signal`. The guard adopts orphans of the children and ends them, too.

Processes that share the children hold shared locks on the file `users`. The guard keeps the children until there is no
such lock, and holds an exclusive one while it stops them.

A child with a `module` is a fork of the guard, which has imported what `preload` names: five Python processes share its
memory and a second of imports. If the guard cannot preload, it starts the same command as a new process.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_DEATH_SEEN_S = 0.1
_USERS_CHECK_S = 0.2
_KILL_LIMIT_S = 5.0  # a process in an uninterruptible wait does not even end at SIGKILL

_LIBC = ctypes.CDLL(None)


def _prctl(option: int, value: int) -> None:
    _LIBC.prctl(option, value, 0, 0, 0)


class Forked(BaseException):
    """Leaves the frames of the guard in a fork of it, which becomes a program."""

    def __init__(self, argv: list[str], module: str) -> None:
        super().__init__()
        self._argv, self._module = argv, module

    def become(self) -> None:
        # The guard's objects of these names have its buffers.
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", 1, closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        sys.argv[:] = self._argv[self._argv.index(self._module) :]
        if (titles := sys.modules.get("setproctitle")) is not None:
            titles.setproctitle(" ".join(self._argv))  # otherwise the machine's list of processes shows the guard
        gc.enable()
        runpy.run_module(self._module, run_name="__main__", alter_sys=True)


class Child:
    """One command, from its start to its exit."""

    def __init__(self, spec: dict[str, Any], environment: int, inherit: list[int], *, fork: bool) -> None:
        self.name: str = spec["name"]
        self.stop_signal: int = spec["stop_signal"]
        self.grace_s: float = spec["grace_s"]
        self.status: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        log = os.open(spec["log_file"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if fork:
                self.pid = _fork(spec, environment, log, inherit)
            else:
                self._process = _spawn(spec, environment, log, inherit)
                self.pid = self._process.pid
        finally:
            os.close(log)

    def send(self, number: int) -> None:
        """Signal the command itself, not its group; the command handles its own children."""
        if self.status is None:
            os.kill(self.pid, number)

    def kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def ended(self, status: int) -> None:
        self.status = status
        if self._process is not None:
            self._process.returncode = status


def _spawn(spec: dict[str, Any], environment: int, log: int, inherit: list[int]) -> "subprocess.Popen[bytes]":
    guard, death_signal = os.getpid(), spec["death_signal"] or spec["stop_signal"]
    switch: dict[str, Any] = {}
    if spec["user"] is not None:
        switch = {"user": spec["user"][0], "group": spec["user"][1], "extra_groups": []}
    return subprocess.Popen(
        spec["argv"],
        env=_read_environment(environment),
        cwd=spec["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=inherit,
        start_new_session=True,  # one group to kill and, where the kernel schedules sessions, to prioritize
        # Runs after the change of user, which clears the death signal.
        preexec_fn=lambda: _tie_to_guard(guard, death_signal),  # noqa: PLW1509 - this process has one thread
        **switch,
    )


def _fork(spec: dict[str, Any], environment: int, log: int, inherit: list[int]) -> int:
    """Fork the guard; return twice: the process id here, and by ``Forked`` in the child."""
    guard = os.getpid()
    if pid := os.fork():
        return pid
    try:
        os.setsid()
        _tie_to_guard(guard, spec["death_signal"] or spec["stop_signal"])
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as the interpreter sets it
        os.chdir(spec["cwd"])
        os.environ.clear()
        os.environ.update(_read_environment(environment))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # The frames of the guard close both files as they are left.
        descriptors = sorted({2, log, environment, *inherit})
        for low, high in zip(descriptors, [*descriptors[1:], 1 << 16], strict=True):
            os.closerange(low + 1, high)
    except BaseException:  # noqa: BLE001 - this fork must never go on as the guard
        traceback.print_exc()
        os._exit(1)
    raise Forked(spec["argv"], spec["module"])


def _tie_to_guard(guard: int, death_signal: int) -> None:
    _prctl(_PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != guard:
        os._exit(1)  # the guard died before the prctl call


def _read_environment(file: int) -> dict[str, str]:
    return dict(json.loads(os.pread(file, os.fstat(file).st_size, 0)))


def _preload(preload: dict[str, Any]) -> bool:
    """Import modules for forks to share; return True if a fork of this process is safe."""
    sys.path[:] = preload["path"]
    with contextlib.suppress(ImportError):
        # Its first call finds the memory of the title by that of the environment, which forks replace.
        importlib.import_module("setproctitle").getproctitle()
    os.environ.update(preload["environment"])
    gc.disable()  # a collection in a fork writes to every page
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    try:
        for module in preload["modules"]:
            importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - whatever a package does at its import
        sys.stderr.write(f"The processes share no memory: {error!r}\n")
        return False
    gc.freeze()
    if len(os.listdir("/proc/self/fd")) != files:  # noqa: PTH208 - forks do not have them
        sys.stderr.write("The processes share no memory: a module opened a file when it was imported\n")
        return False
    return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - another thread may hold a lock


class Guard:
    """Event loop of the guard. One thread; every wait has a time limit."""

    def __init__(self) -> None:
        self.commands = socket.socket(fileno=0)
        self._environments: list[int] = []
        self._forks = False
        self._children: dict[str, Child] = {}  # in start order
        self._inherit: list[int] = []
        self._remove: list[str] = []
        self._users: str | None = None
        self._parent = os.getppid()
        self._parent_fd = os.pidfd_open(self._parent)
        self._buffer = b""
        self._finished = self._terminated = False
        self._wakeup, wakeup_in = os.pipe()
        for fd in (0, 1, self._wakeup, wakeup_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._terminate())
        for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGPIPE):
            # A handler, not SIG_IGN: the children would inherit that. A shell ignores SIGQUIT in what it runs with `&`.
            signal.signal(ignored, lambda *_: None)

    def run(self) -> None:
        """Serve until the input closes, SIGTERM arrives or the parent dies; then stop all children and clean up."""
        while not self._finished:
            ready = self._wait([0, self._wakeup, self._parent_fd], None)
            self._reap()
            if 0 in ready:
                self._read_commands()
            if self._parent_fd in ready or os.getppid() != self._parent:
                self._finished = True
        self._wait_for_users()
        if self._orphaned():
            # Stopping one by one takes too long: the last child would still hold its port when a new service starts.
            for child in self._children.values():
                child.send(child.stop_signal)
            signalled = time.monotonic()
            for child in self._children.values():
                self._end(child, signalled)
        for child in reversed(self._children.values()):
            self._stop(child)
        self._end_orphans()
        for directory in self._remove:
            _remove_tree(directory)

    def _terminate(self) -> None:
        self._finished = self._terminated = True

    def _wait_for_users(self) -> None:
        """Keep the children until no process uses them any more; SIGTERM does not wait."""
        if self._users is None or self._terminated or not self._children:
            return
        file = os.open(self._users, os.O_RDWR | os.O_CLOEXEC)  # open, and thereby locked, until the guard exits
        told = False
        while not self._terminated and not _locked(file):
            if not told:
                _emit(event="kept")
                told = True
            self._wait([self._wakeup], _USERS_CHECK_S)
            self._reap()

    def _orphaned(self) -> bool:
        """Return True if the parent is dead; its end of the pipe closes a moment earlier."""
        deadline = time.monotonic() + _DEATH_SEEN_S
        while os.getppid() == self._parent and (left := deadline - time.monotonic()) > 0:
            self._wait([self._parent_fd], min(left, 0.02))
        return os.getppid() != self._parent

    def _wait(self, sources: list[int], timeout_s: float | None) -> list[int]:
        ready = select.select(sources, [], [], timeout_s)[0]
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)
        return ready

    def _read_commands(self) -> None:
        received, fds, _, _ = socket.recv_fds(self.commands, 1 << 16, 16)
        self._environments += fds
        if not received:
            self._finished = True  # the parent closed the input or died
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        for line in lines:
            self._handle_command(json.loads(line))

    def _handle_command(self, command: dict[str, Any]) -> None:
        match command:
            case {"op": "watch", "parent": parent, "inherit": inherit, "remove": remove, **options}:
                self._inherit, self._remove, self._users = inherit, remove, options["users"]
                preload = options["preload"]
                self._forks = preload is not None and _preload(preload)
                if parent != self._parent:
                    self._finished = True  # the parent died before it could be watched
            case {"op": "start", "child": spec}:
                self._start(spec)
            case {"op": "signal", "name": name, "signal": number}:
                self._children[name].send(number)
            case {"op": "stop", "name": name}:
                self._stop(self._children[name])
            case _:
                self._finished = True

    def _start(self, spec: dict[str, Any]) -> None:
        if self._children.pop(spec["name"], None) is not None:
            self._end_orphans()  # of the previous instance, which may still hold its files
        environment = self._environments.pop(0)
        try:
            child = Child(spec, environment, self._inherit, fork=self._forks and spec["module"] is not None)
        except (OSError, subprocess.SubprocessError) as error:
            _emit(event="failed", name=spec["name"], error=str(error))
            return
        finally:
            os.close(environment)
        self._children[child.name] = child
        _emit(event="started", name=child.name, pid=child.pid)

    def _stop(self, child: Child) -> None:
        child.send(child.stop_signal)
        self._end(child, time.monotonic())

    def _end(self, child: Child, signalled: float) -> None:
        """Wait for a child after its stop signal, and kill it after its grace period."""
        if not self._ended_within(child, child.grace_s - (time.monotonic() - signalled)):
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
                _emit(event="exited", name=child.name, pid=pid, status=status)

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


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ended_child() -> int | None:
    try:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return ended.si_pid if ended else None


def _processes_below(parent: int) -> list[int]:
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == parent:
                pids.append(int(stat.parent.name))
    return pids


def _emit(**event: Any) -> None:
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
    guard = Guard()
    try:
        guard.run()
    except Forked as forked:
        program = forked.with_traceback(None)  # without the frames of the guard
    else:
        return
    guard.commands.detach()  # the standard input of this fork has its number
    program.become()


if __name__ == "__main__":
    main()
