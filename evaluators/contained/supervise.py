"""Starts the contained process and is there when it ends: the only one that measures it, sweeps after it and reports.

The supervisor is forked off before anything of a candidate is read. It collects orphans (subreaper), so that a daemon
which left its session is still found; when the broker hangs up or dies, it kills everything and removes the temporary
directory. It imports C modules only where the usual ones would cost milliseconds for every candidate.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import time

from .wire import Wire, decode

TYPE_CHECKING = False  # importing typing would take longer than starting the interpreter
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

CHANNEL_FD = 3
_SIGKILL = 9
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLEAR = 'chmod -R u+rwX -- "$1" 2>/dev/null; rm -rf -- "$1"'


def main() -> NoReturn:
    """Fork the process named in ``argv`` (role, channel fd, control fd, set-up as JSON) and watch it to its end."""
    role, channel, control, setup = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), decode(sys.argv[4])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        _contained(role, channel, control, setup)
    os.close(channel)
    for fd in (1, 2):
        os.dup2(0, fd)  # the log pipes end with the contained process
    os.set_inheritable(control, False)
    os.chdir("/")
    wire = Wire(control, 1 << 16)
    _report(wire, {"pid": pid})
    _wait(pid, control)
    _report(wire, _sweep(pid))
    _remove(setup["tmp"])


def _contained(role: str, channel: int, control: int, setup: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        serve = _enter(role, channel, control, setup)
        serve(Wire(CHANNEL_FD, setup["frame_bytes"]))
        code = 0
    except BaseException as error:  # noqa: BLE001  # whatever happens, this fork must never go on as the supervisor
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _enter(role: str, channel: int, control: int, setup: dict[str, Any]) -> Callable[[Wire], None]:
    """Leave everything of the supervisor behind and return what the process is to do."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if channel != CHANNEL_FD:
        os.dup2(channel, CHANNEL_FD)
    os.closerange(CHANNEL_FD + 1, max(channel, control) + 1)
    os.set_inheritable(CHANNEL_FD, False)
    os.umask(0o077)
    sys.path.extend(setup["site"])
    sys.argv[:] = [role]
    # A process that is killed loses what it has buffered.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    serve = _program(role)
    for name, (soft, hard) in setup["rlimits"].items():
        _lower(getattr(resource, name), soft, hard)
    return serve


def _program(role: str) -> Callable[[Wire], None]:
    if role == "author":
        from .author import serve as serve_author

        return serve_author
    from .candidate import serve as serve_candidate

    return serve_candidate


def _report(wire: Wire, message: dict[str, Any]) -> None:
    try:
        wire.write(message)
    except OSError:
        return  # the broker is gone: nobody listens, but what is left to sweep and remove is swept and removed


def _lower(which: int, soft: int, hard: int) -> None:
    ceiling = resource.getrlimit(which)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(which, (soft, hard))


def _wait(pid: int, control: int) -> None:
    """Return when the process has ended or the broker has hung up."""
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(control, select.POLLIN)
    poll.poll()
    os.close(pidfd)


def _sweep(pid: int) -> dict[str, Any]:
    """Kill the process with everything it started and return how it ended and what it used."""
    # WNOWAIT: as long as the process is not reaped, its group id cannot be given to anybody else.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    _kill(-pid)
    _kill(pid)
    _, status, usage = os.wait4(pid, 0)
    cpu_s, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
    while True:
        try:
            reaped, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if reaped:
            cpu_s += usage.ru_utime + usage.ru_stime
            memory = max(memory, usage.ru_maxrss)
            continue
        for stray in _descendants():
            _kill(stray)
        time.sleep(0.001)
    return {"status": status, "ended": ended, "cpu_s": cpu_s, "memory_bytes": memory * 1024}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, _SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # gone, or a zombie that cannot be signalled any more


def _descendants() -> list[int]:
    """Return every process below this one, by the parents that ``/proc`` names."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208  # pathlib costs milliseconds
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # ended in the meantime
            children.setdefault(parent, []).append(int(entry))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _prctl(option: int, argument: int) -> None:
    import _ctypes  # importing ctypes itself would cost 3 ms

    this_program: Any = None  # which the C library is part of
    _ctypes.call_function(_ctypes.dlsym(_ctypes.dlopen(this_program, 0), "prctl"), (option, argument, 0, 0, 0))


def _remove(directory: str) -> NoReturn:
    try:
        os.rmdir(directory)  # noqa: PTH106
    except FileNotFoundError:
        os._exit(0)
    except OSError:
        # Not empty: what is in there may be thousands of levels deep, which rm handles and Python's walk does not.
        os.execv("/bin/sh", ["sh", "-c", _CLEAR, "sh", directory])  # noqa: S606
    os._exit(0)
