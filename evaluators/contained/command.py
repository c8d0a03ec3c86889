"""Build a candidate that is not Python, or serve calls into it by running a command for every call.

First message of a build: ``{"files": {path: [base64, executable]}, "build": [word, ...], "max_files": n, "max_bytes":
n}``, answered by ``{"built": files}`` in the same form, or by ``{"error": reason, "detail": text}``. First message of a
run: ``{"files": files, "language": {"run": [...], "exchange": ...}, "cpu_s": s, "file_bytes": n}``; the answer has
index -1. Then calls as in ``candidate``. The candidate's processes share namespaces with this one and can manipulate
it, so nothing here decides a result.
"""

from __future__ import annotations

import base64
import json
import os
import re
import resource
import signal
import socket
import stat
from pathlib import Path
from typing import IO, Any, Protocol

from .bounds import cpu_rlimit
from .candidate import LOADING, refuse
from .program import DETAIL_CHARS, show_libraries
from .seccomp import Filter, SyscallPolicy, execute_once, template
from .tier_a import SELF
from .wire import TooLongError, Wire

_INPUT = ".input"
_ERRORS = ".errors"
_SCRATCH = ".build"
_ERROR_BYTES = 1000
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._$-]*")
_HEAD_CHARS = DETAIL_CHARS * 3 // 4
"""Characters kept of the beginning of a compiler's messages: the first one usually explains the others."""

Files = dict[str, list[Any]]


class CommandFailedError(Exception):
    """A command failed; the message describes how it ended, and ``reason`` is the reason of a call's failure."""

    def __init__(self, detail: str, reason: str = "program_failed") -> None:
        super().__init__(detail)
        self.reason = reason


class _TooLargeError(Exception):
    """A build left too many or too large files."""


class Commands(Protocol):
    """Runs the commands of a language in the working folder."""

    def compile(self, command: list[str]) -> None: ...

    def run(self, command: list[str], text: bytes, most: int, limits: dict[str, Any]) -> bytes:
        """Return the command's output, at most ``most`` bytes; raises ``CommandFailedError`` or ``TooLongError``."""


def serve(wire: Wire, commands: Commands | None = None) -> None:
    """Build the program, or answer calls until the worker closes the channel. Without ``commands`` they run here."""
    commands = commands or _Here()
    first = wire.read()
    if first is None:
        return
    show_libraries()
    if "build" in first:
        wire.write(_build(first, commands))
        return
    language: dict[str, Any] = first["language"]
    try:
        _unpack(first["files"])
    except OSError as error:
        refuse(wire, LOADING, "build_failed", str(error))
        return
    wire.write({"index": LOADING, "value": None})
    while (call := wire.read()) is not None:
        try:
            output = commands.run(language["run"], _encode_input(language, call["args"]), wire.max_bytes, first)
            wire.write({"index": call["index"], "value": _decode_output(language, output)})
        except TooLongError as error:
            refuse(wire, call["index"], "too_long", str(error))
        except (ValueError, RecursionError) as error:
            refuse(wire, call["index"], "not_json", str(error))
        except CommandFailedError as error:
            refuse(wire, call["index"], error.reason, str(error))
        except OSError as error:
            refuse(wire, call["index"], "program_failed", str(error))


def _build(first: dict[str, Any], commands: Commands) -> dict[str, Any]:
    try:
        _unpack(first["files"])
        Path(_SCRATCH).mkdir()
        # Compilers' caches and intermediate files are not part of the program.
        os.environ["HOME"] = os.environ["TMPDIR"] = str(Path(_SCRATCH).absolute())
        commands.compile(first["build"])
        return {"built": _collect(first["max_files"], first["max_bytes"])}
    except _TooLargeError as error:
        return {"error": "too_large", "detail": str(error)}
    except (CommandFailedError, OSError, RecursionError) as error:
        return {"error": "build_failed", "detail": str(error)}


def _unpack(files: Files) -> None:
    for name, (content, executable) in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))
        path.chmod(0o755 if executable else 0o644)


class _Here:
    """Runs commands in this process's namespaces."""

    _ended = 0
    """Process of the last call. It is reaped before the next one: until then the worker can see how long it waited."""

    def compile(self, command: list[str]) -> None:
        import subprocess  # preloaded only for languages: in other zygotes it would enlarge every fork

        _show_own_path(command[0])
        with open(_ERRORS, "w+b") as messages:  # noqa: PTH123
            try:
                ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, check=False)
            except OSError as error:
                raise CommandFailedError(f"{command[0]}: {error.strerror}") from None
            if ended.returncode:
                raise CommandFailedError(f"{printed(messages)}\n{command[0]}: {ending(ended.returncode)}".lstrip())

    def run(self, command: list[str], text: bytes, most: int, limits: dict[str, Any]) -> bytes:
        if self._ended:
            os.waitpid(self._ended, 0)
        self._ended = 0
        Path(_INPUT).write_bytes(text)  # a file, so that the command need not read its input while it writes
        with open(_INPUT, "rb") as stdin, open(_ERRORS, "w+b") as errors:  # noqa: PTH123
            pid, stdout = _start(command, stdin.fileno(), errors.fileno(), limits)
            with open(stdout, "rb") as stream:  # noqa: PTH123
                output = stream.read(most + 1)
            if len(output) > most:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise TooLongError(f"more than {most} bytes of output")
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            errors.seek(max(errors.seek(0, os.SEEK_END) - DETAIL_CHARS, 0))
            complaint = errors.read().decode("utf-8", "replace")
        os.write(2, complaint.encode())
        if ended is not None and ended.si_status == 0:
            self._ended = pid
        else:
            _, status, usage = os.wait4(pid, 0)
            code, used_s = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
            if code == -signal.SIGXCPU or (code == -signal.SIGKILL and used_s >= limits["cpu_s"]):
                raise CommandFailedError(f"used {used_s:.1f} s of processor time", "cpu_limit")
            raise CommandFailedError(f"{ending(code)}\n{complaint}")
        return output


def _start(command: list[str], stdin: int, stderr: int, limits: dict[str, Any]) -> tuple[int, int]:
    import shutil

    words, environment = _without_env(command)
    path = shutil.which(words[0]) or (words[0] if "/" in words[0] else None)
    if path is None:
        raise CommandFailedError(f"{words[0]}: No such file or directory")
    stdout, its_stdout = os.pipe()
    ours, its = socket.socketpair()
    with ours:
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # which Python ignores
                for fd, number in ((stdin, 0), (its_stdout, 1), (stderr, 2)):
                    os.dup2(fd, number)
                socket.send_fds(its, [b"."], [_confine(limits)])
                os.execve(path, words, environment)  # noqa: S606  # by words, not by a shell
            except BaseException as error:  # noqa: BLE001  # whatever happens, this fork must not go on
                its.send((getattr(error, "strerror", None) or str(error)).encode())
            finally:
                os._exit(1)
        its.close()
        os.close(its_stdout)
        complaint, listeners, _, _ = socket.recv_fds(ours, _ERROR_BYTES, 1)
        if listeners:
            execute_once(listeners[0])
            complaint = ours.recv(_ERROR_BYTES)  # nothing: the descriptor closes when the program starts
    if complaint:
        os.close(stdout)
        os.waitpid(pid, 0)
        raise CommandFailedError(f"{words[0]}: {complaint.decode('utf-8', 'replace')}")
    return pid, stdout


def _without_env(command: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return a command without a leading ``env``, which would execute the program, and the environment that it sets."""
    words, environment = [*command], dict(os.environ)
    if words[0] in ("env", "/usr/bin/env"):
        at = next((at for at, word in enumerate(words) if at and "=" not in word), 0)
        if at and not words[at].startswith("-"):
            environment |= dict(word.split("=", 1) for word in words[1:at])
            words = words[at:]
    return words, environment


def _show_own_path(tool: str) -> None:
    """Put a compiler's path where it reads ``/proc/self/exe``: Rust before 1.67 finds its libraries by it."""
    import shutil

    path = shutil.which(tool)
    if path is not None and os.readlink("/proc/self") == SELF:  # noqa: PTH115
        Path(SELF).mkdir()
        Path(SELF, "exe").symlink_to(path)


def printed(stream: IO[bytes]) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    tail = DETAIL_CHARS - _HEAD_CHARS - 200
    if size <= _HEAD_CHARS + tail:
        return stream.read().decode("utf-8", "replace").rstrip()
    head = stream.read(_HEAD_CHARS).decode("utf-8", "replace")
    stream.seek(-tail, os.SEEK_END)
    return f"{head}\n…\n{stream.read(tail).decode('utf-8', 'replace')}".rstrip()


def _collect(max_files: int, max_bytes: int) -> Files:
    """Return the regular files that a build left; links and other kinds of files are no part of a program."""
    files: Files = {}
    left = max_bytes
    own = Path().stat().st_dev
    for folder, folders, names in os.walk("."):
        below = os.path.relpath(folder, ".")
        # Data files, and toolchains beneath /tmp, are mounted here.
        folders[:] = [name for name in folders if _NAME.fullmatch(name) and os.lstat(f"{folder}/{name}").st_dev == own]
        for name in filter(_NAME.fullmatch, names):
            path = os.path.normpath(f"{below}/{name}")
            content, executable = _read(path, left + 1)
            if content is None:
                continue
            left -= len(content)
            if left < 0 or len(files) == max_files:
                raise _TooLargeError(f"the build left more than {max_bytes} bytes, or more than {max_files} files")
            files[path] = [base64.b64encode(content).decode("ascii"), executable]
    return files


def _read(path: str, most: int) -> tuple[bytes | None, bool]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None, False
    with open(descriptor, "rb") as file:  # noqa: PTH123
        mode = os.fstat(descriptor).st_mode
        return (file.read(most), bool(mode & stat.S_IXUSR)) if stat.S_ISREG(mode) else (None, False)


def _encode_input(language: dict[str, Any], args: list[Any]) -> bytes:
    if language["exchange"] == "json":
        return json.dumps(args).encode() + b"\n"
    if len(args) != 1 or not isinstance(args[0], str):
        raise ValueError("programs that exchange text take one argument, a string")
    text: str = args[0]
    return text.encode("utf-8", "surrogatepass")


def _decode_output(language: dict[str, Any], output: bytes) -> Any:
    text = output.decode("utf-8")
    return json.loads(text) if language["exchange"] == "json" else text.rstrip()


def _confine(limits: dict[str, Any]) -> int:
    """Forbid the candidate's command to start or execute anything; return the descriptor for ``execute_once``."""
    resource.setrlimit(resource.RLIMIT_CPU, cpu_rlimit(limits["cpu_s"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_bytes"], limits["file_bytes"]))
    return Filter(template(SyscallPolicy.PROGRAM, changes=True, open_flags=False)).install(listen=True)


def ending(code: int) -> str:
    """Return how a command ended, from its exit status; minus the number of a signal."""
    if code > 0:
        return f"it exited with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"it was killed by {name}"
