"""Run a command of the user within limits, and end everything that it started."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from uuid import uuid4

MARK: Final = "SPECIATE_COMMAND"
"""Variable by which the descendants of a command are found, whatever session they are in."""
_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
_SHORTEST_POLL_S: Final = 0.005
_LONGEST_POLL_S: Final = 0.1
_FOLDER_POLL_S: Final = 1.0
_MOST_FILE_BYTES: Final = 1 << 30
"""Largest file that a command may write anywhere: a bound between two polls. Caches of tools are smaller."""
_MOST_FILES: Final = 1_000_000
_ERROR_BYTES: Final = 4000
KEPT_BYTES: Final = 16 << 20
"""Output that is returned, from its end."""
_MOST_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class CommandLimits:
    timeout_s: float
    output_bytes: int  # most bytes on standard output, and on standard error
    folder_bytes: int = 0  # most bytes of the files in the folder
    stop_s: float = 0.0  # seconds between SIGTERM and SIGKILL if it must be ended


@dataclass(frozen=True, slots=True)
class CommandResult:
    status: int | None  # exit status, negative for a signal; None if the command was ended for a limit
    exceeded: str  # what it did wrong then, such as ``ran for more than 60 s``
    output: str
    errors: str  # end of standard error
    processor_s: float  # of its process and of those that this one waited for


def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    limits: CommandLimits,
    *,
    directory: Path | None = None,
    folder: Path | None = None,
    text: str = "",
    give_up: Callable[[], bool] = lambda: False,
) -> CommandResult:
    """Run a command without a shell, with a text as standard input; kill its descendants when it ends.

    If this process is killed, so is the command. ``environment`` holds all of its variables, and ``folder`` is the one
    whose size is bounded; ``give_up``, which is called often, returns True to kill the command.
    """
    mark = f"{MARK}={uuid4()}"
    # Files instead of pipes: a command need not read its input, and a descendant may keep its output open.
    with TemporaryFile() as given, TemporaryFile() as output, TemporaryFile() as errors:
        given.write(text.encode("utf-8", "replace"))
        given.seek(0)
        variables = {**environment, MARK: mark.partition("=")[2]}
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=variables,
            stdin=given,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=partial(_end_with, os.getpid()),  # noqa: PLW1509 - it takes no lock
        )
        try:
            if folder is not None:
                with suppress(OSError):  # it has ended
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_MOST_FILE_BYTES, _MOST_FILE_BYTES))
            exceeded = _wait(process.pid, limits, (output, errors), folder, give_up)
            if exceeded and limits.stop_s:
                process.terminate()
                _wait(
                    process.pid,
                    CommandLimits(limits.stop_s, limits.output_bytes),
                    (output, errors),
                    None,
                    lambda: False,
                )
        finally:
            processor_s = _end(process, mark.encode())
        status = None if exceeded else process.returncode
        return CommandResult(status, exceeded, _tail(output, KEPT_BYTES), _tail(errors, _ERROR_BYTES), processor_s)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends, which waits for its end."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _wait(
    pid: int, limits: CommandLimits, outputs: Sequence[IO[bytes]], folder: Path | None, give_up: Callable[[], bool]
) -> str:
    """Wait for the end of a process, which is not reaped; return the limit that it exceeded, or an empty text."""
    started, poll_s, measured_at = time.monotonic(), _SHORTEST_POLL_S, 0.0
    while True:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        now = time.monotonic()
        if any(os.fstat(each.fileno()).st_size > limits.output_bytes for each in outputs):
            return f"wrote more than {limits.output_bytes} bytes"
        if folder is not None and (ended or now - measured_at > _FOLDER_POLL_S):
            measured_at = now
            if measure(folder, _MOST_FILES)[0] > limits.folder_bytes:
                return f"wrote files of more than {limits.folder_bytes} bytes"
        if ended:
            return ""
        if now - started > limits.timeout_s:
            return f"ran for more than {limits.timeout_s:g} s"
        if give_up():
            return "was interrupted"
        time.sleep(poll_s)
        poll_s = min(2 * poll_s, _LONGEST_POLL_S)


def _end(process: subprocess.Popen[bytes], mark: bytes) -> float:
    # The process is not reaped yet, so the number of its group cannot have passed to another one.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    for _ in range(_MOST_ROUNDS):
        if not (left := [*_marked(mark)]):
            break
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return usage.ru_utime + usage.ru_stime


def _marked(mark: bytes) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # ended, or of another user
            if mark in entry.read_bytes().split(b"\0"):
                yield int(entry.parent.name)


def measure(folder: Path, most_files: int) -> tuple[int, int]:
    """Return the size of all files below a folder, endless if it cannot be read, and their number; both may change."""
    size = count = 0
    folders = [str(folder)]
    while folders and count <= most_files:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    count += 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        status = entry.stat(follow_symlinks=False)
                        size += max(status.st_size, status.st_blocks * 512)
        except (FileNotFoundError, NotADirectoryError):  # moved or removed
            continue
        except OSError:
            return sys.maxsize, count
    return size, count


def _tail(file: IO[bytes], most: int) -> str:
    file.seek(max(0, file.seek(0, os.SEEK_END) - most))
    return file.read(most).decode("utf-8", "replace")
