"""Tier ``process``: a fresh interpreter for every evaluation. It contains accidents, not attacks.

What it promises: resource limits, a session of its own, an empty environment, no inherited descriptors, a private
temporary directory that is removed, and the death of every process that descends from the candidate. What it does not:
the candidate has the worker's user, files and network. A program that *means* harm can read the worker's files, send
signals to the worker, fill the disk or open connections. Run programs of strangers in a stronger tier.

The interpreter is started as ``python -I`` would be, spelled out as ``-s -P`` with an environment made from nothing:
``-I`` would ignore ``PYTHONHASHSEED``, without which sets iterate in another order every time. ``-S`` saves 3 ms;
installed packages stay importable, ``.pth`` files (editable installs, such as this project) do not count.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from evaluators.channel import ENVELOPE_BYTES, FrameError, FrameReader, Message
from evaluators.limits import rlimits
from evaluators.tiers.sandbox import Role, Usage
from speciate.domain.problem import Limits

AUTHOR_FRAME_BYTES = 64 << 20
"""Longest message of an author's script, which may hand large inputs to a candidate."""

_HERE = str(Path(__file__).resolve().parent.parent)
_BOOT = f"import sys; sys.path.insert(0, {_HERE!r}); from contained.supervise import main; del sys.path[0]; main()"
_STOP_S = 10.0
_REMOVE_S = 60.0  # what a candidate left may be thousands of files on a slow disk


class ProcessSandbox:
    """Starts one interpreter per contained process."""

    name = "process"

    def start(self, role: Role, limits: Limits) -> ContainedProcess:
        """Start an interpreter without waiting for it.

        Raises:
            OSError: No process, descriptor or temporary space is left.
        """
        return ContainedProcess(role, limits)

    def close(self) -> None:
        """Nothing is kept running between evaluations."""


class ContainedProcess:
    """A supervisor and the contained process that it forks.

    Attributes:
        channel: Non-blocking stream to the contained process.
        logs: Descriptors of its standard output and error.
    """

    def __init__(self, role: Role, limits: Limits) -> None:
        self._reports = FrameReader(1 << 16)
        self._pid: int | None = None
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            self._tmp = tempfile.mkdtemp(prefix="speciate-eval-")
            undo.callback(os.rmdir, self._tmp)
            self.channel, channel = _socket_pair(undo, theirs)
            self._control, control = _socket_pair(undo, theirs)
            (out, their_out), (err, their_err) = _pipe(undo, theirs), _pipe(undo, theirs)
            self.logs: Mapping[str, int] = {"stdout": out, "stderr": err}
            self._supervisor = subprocess.Popen(
                _command(role, limits, channel.fileno(), control.fileno(), self._tmp),
                stdin=subprocess.DEVNULL,
                stdout=their_out,
                stderr=their_err,
                pass_fds=(channel.fileno(), control.fileno()),
                env=_environment(self._tmp),
                cwd=self._tmp,
                start_new_session=True,
            )
            undo.pop_all()
        self.channel.setblocking(False)
        for fd in self.logs.values():
            os.set_blocking(fd, False)

    def wait_ready(self, timeout_s: float) -> bool:
        """Return whether the contained process runs, after waiting for its supervisor to say so."""
        if self._pid is None:
            report = self._report(time.monotonic() + timeout_s)
            pid = None if report is None else report.get("pid")
            if not isinstance(pid, int):
                return False
            self._pid = pid
        return not _readable(self._control, 0)  # the next thing it says is how the process ended

    def stop(self, *, grace_s: float = 0.0) -> Usage:
        """Have the supervisor kill and sweep everything, and return its report."""
        if grace_s:
            _readable(self._control, grace_s)
        deadline = time.monotonic() + _STOP_S
        _hang_up(self._control)
        report = None
        while (message := self._report(deadline)) is not None:
            report = message  # the last one; the first may still be the process id
        self._control.close()
        self._reap()
        return _usage(report)

    def close(self) -> None:
        """Close the channel and the logs."""
        self.channel.close()
        for fd in self.logs.values():
            os.close(fd)

    def _report(self, deadline: float) -> Message | None:
        """Return the supervisor's next message, or None when it has ended or the time is up."""
        try:
            while (message := self._reports.next()) is None:
                self._control.settimeout(max(deadline - time.monotonic(), 0.001))
                data = self._control.recv(1 << 16)
                if not data:
                    return None
                self._reports.feed(data)
        except (OSError, FrameError):
            return None
        return message

    def _reap(self) -> None:
        try:
            self._supervisor.wait(_REMOVE_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        if self._supervisor.returncode != 0:
            self._sweep()

    def _sweep(self) -> None:
        """Do what a supervisor that was killed could not do: best effort, since its orphans are nobody's children."""
        if self._pid is not None:
            try:
                os.killpg(self._pid, signal.SIGKILL)
            except ProcessLookupError:
                self._pid = None
        subprocess.run(["rm", "-rf", "--", self._tmp], check=False, stderr=subprocess.DEVNULL)


def _socket_pair(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    here, there = socket.socketpair()
    return ours.enter_context(here), theirs.enter_context(there)


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    here, there = os.pipe()
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    return here, there


def _command(role: Role, limits: Limits, channel: int, control: int, tmp: str) -> list[str]:
    frame_bytes = AUTHOR_FRAME_BYTES if role is Role.AUTHOR else limits.output_bytes
    setup = {
        "tmp": tmp,
        "site": [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))],
        "rlimits": rlimits(limits, cpu=role is Role.CANDIDATE),
        "frame_bytes": frame_bytes + ENVELOPE_BYTES // 2,
    }
    flags = ["-s", "-P", "-S", "-c", _BOOT]
    return [sys.executable, *flags, role.value, str(channel), str(control), json.dumps(setup)]


def _environment(tmp: str) -> dict[str, str]:
    one_thread = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": tmp,
        "TMPDIR": tmp,
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        **dict.fromkeys(one_thread, "1"),
    }


def _readable(control: socket.socket, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _hang_up(control: socket.socket) -> None:
    # Not close(): a worker that was forked meanwhile may hold a copy of this end.
    try:
        control.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the supervisor is gone


def _usage(report: Message | None) -> Usage:
    match report:
        case {"status": int(status), "ended": bool(ended), "cpu_s": float(cpu_s), "memory_bytes": int(memory)}:
            return Usage(status, ended, cpu_s, memory)
        case _:
            return Usage(None, ended=False)
