"""Serve calls into a candidate that is not Python: write its source, build it, and run a command for every call.

First message: ``{"program": text, "files": {name: text}, "seed": int, "language": {...}, "cpu_s": s}``, where
``program`` is the main file. The answer has index -1 and holds a value after the build, or ``build_failed``. Then calls
as in ``candidate``. The candidate's processes share namespaces with this one and can manipulate it, so nothing here
decides a result.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
from pathlib import Path
from typing import Any

from .candidate import LOADING
from .program import DETAIL_CHARS
from .seccomp import Filter, SyscallPolicy, template
from .wire import TooLongError, Wire

_INPUT = ".input"


class _CommandFailedError(Exception):
    """A command failed; the message describes how it ended."""


def serve(wire: Wire) -> None:
    """Build the program and answer calls until the broker closes the channel."""
    first = wire.read()
    if first is None:
        return
    language: dict[str, Any] = first["language"]
    try:
        for name, text in {**first["files"], language["file"]: first["program"]}.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        if language["build"]:
            _run(language["build"], b"", wire.max_bytes)
    except (_CommandFailedError, OSError) as error:
        _refuse(wire, LOADING, "build_failed", str(error))
        return
    wire.write({"index": LOADING, "value": None})
    while (call := wire.read()) is not None:
        try:
            said = _run(language["run"], _encode_input(language, call["args"]), wire.max_bytes, cpu_s=first["cpu_s"])
            wire.write({"index": call["index"], "value": _decode_output(language, said)})
        except TooLongError as error:
            _refuse(wire, call["index"], "too_long", str(error))
        except (ValueError, RecursionError) as error:
            _refuse(wire, call["index"], "not_json", str(error))
        except (_CommandFailedError, OSError) as error:
            _refuse(wire, call["index"], "program_failed", str(error))


def _encode_input(language: dict[str, Any], args: list[Any]) -> bytes:
    if language["exchange"] == "json":
        return json.dumps(args).encode() + b"\n"
    if len(args) != 1 or not isinstance(args[0], str):
        raise ValueError("programs that exchange text take one argument, a string")
    text: str = args[0]
    return text.encode("utf-8", "surrogatepass")


def _decode_output(language: dict[str, Any], said: bytes) -> Any:
    text = said.decode("utf-8")
    if language["exchange"] == "json":
        return json.loads(text)
    return text.rstrip()


def _run(command: list[str], said: bytes, most: int, cpu_s: float | None = None) -> bytes:
    """Run a command and return its standard output.

    Args:
        command: Words of the command line.
        said: Standard input of the command.
        most: Size limit of the output in bytes.
        cpu_s: CPU time limit in seconds for a command that runs the candidate; None for an author's command.

    Raises:
        _CommandFailedError: The command failed; the message quotes its standard error.
        TooLongError: The output exceeds the size limit.
    """
    import subprocess  # preloaded only for languages: in other zygotes it would enlarge every fork

    Path(_INPUT).write_bytes(said)  # a file, so that the command need not read its input while it writes
    with open(_INPUT, "rb") as stdin, open(".errors", "w+b") as errors:  # noqa: PTH123
        try:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                preexec_fn=None if cpu_s is None else lambda: _confine(cpu_s),  # noqa: PLW1509  # no threads here
            )
        except OSError as error:
            raise _CommandFailedError(f"{command[0]}: {error.strerror}") from None
        with process, process.stdout or stdin as stdout:
            output = stdout.read(most + 1)
            if len(output) > most:
                process.kill()
                raise TooLongError(f"more than {most} bytes of output")
        errors.seek(max(errors.seek(0, os.SEEK_END) - DETAIL_CHARS, 0))
        complaint = errors.read().decode("utf-8", "replace")
    os.write(2, complaint.encode())
    if process.returncode:
        raise _CommandFailedError(f"{_ending(process.returncode)}\n{complaint}")
    return output


def _confine(cpu_s: float) -> None:
    """Forbid the candidate's command to start further processes."""
    seconds = math.ceil(cpu_s)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    Filter(template(SyscallPolicy.PROGRAM, changes=True, open_flags=False)).install()


def _ending(code: int) -> str:
    if code > 0:
        return f"it exited with code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"it was killed by {name}"


def _refuse(wire: Wire, index: int, reason: str, detail: str) -> None:
    wire.write({"index": index, "error": reason, "detail": detail[-DETAIL_CHARS:]})
