"""Serve a candidate's commands from containers: the process between the worker and a container engine.

It speaks the protocol of ``contained.command`` and is trusted: nothing of the candidate runs in it. The worker ends it
by closing the channel, and so does the worker's death. Before it ends, it kills and removes its container by name.
"""

import json
import os
import select
import selectors
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from evaluators.contained.command import CommandFailedError, ending, serve
from evaluators.contained.program import DETAIL_CHARS
from evaluators.contained.unsafe import remove
from evaluators.contained.wire import TooLongError, Wire
from evaluators.images.engine import CANDIDATE, Engine, container_name, environment
from evaluators.local_folders import make_temporary_folder
from speciate.subprocesses import measure

_TICK_S: Final = 0.2
_CHUNK: Final = 1 << 16
_BUILD_OUTPUT: Final = 1 << 20
"""Bytes that a build may print."""
_POLLRDHUP: Final = 0x2000  # Linux; ``select`` does not name it
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


class EngineError(Exception):
    """The engine did not start a container; the candidate is not the cause."""


class _Ended(NamedTuple):
    """End of a command: exit status of the engine's client, or of the command if it started, and output."""

    code: int
    output: bytes
    errors: str


@dataclass(frozen=True, slots=True)
class Containers:
    """Runs each command in a container of its own, which the end of the ``channel`` ends.

    ``options`` come from ``Engine.options``; ``data`` is the folder of the problem's data files, or "", ``folder`` that
    of the program on this machine; after ``kill_s`` seconds podman itself ends a container.
    """

    engine: Engine
    image: str
    options: list[str]
    data: str
    folder: Path
    channel: int
    scratch_bytes: int
    kill_s: int

    def compile(self, command: list[str]) -> None:
        self.folder.chmod(0o777)
        ended = self._execute(command, b"", _BUILD_OUTPUT, build=True)
        if len(ended.output) > _BUILD_OUTPUT:
            raise CommandFailedError(f"{command[0]}: printed more than {_BUILD_OUTPUT} bytes")
        if ended.code:
            printed = "\n".join(filter(None, (ended.output.decode("utf-8", "replace").rstrip(), ended.errors)))
            raise CommandFailedError(f"{_shortened(printed)}\n{command[0]}: {_how(ended.code)}".lstrip())

    def run(self, command: list[str], text: bytes, most: int, limits: dict[str, Any]) -> bytes:
        ended = self._execute(command, text, most, build=False)
        if len(ended.output) > most:
            raise TooLongError(f"more than {most} bytes of output")
        os.write(2, ended.errors.encode("utf-8", "replace"))
        if ended.code == 128 + signal.SIGKILL:  # both limits are the same
            raise CommandFailedError(f"used {limits['cpu_s']:g} s of processor time", "cpu_limit")
        if ended.code:
            raise CommandFailedError(f"{_how(ended.code)}\n{ended.errors}")
        return ended.output

    def _execute(self, command: list[str], text: bytes, most: int, *, build: bool) -> _Ended:
        name = container_name()
        argv = [*self.options, "--name", name, "--workdir", CANDIDATE]
        argv += ["--volume", f"{self.folder}:{CANDIDATE}:{'rw' if build else 'ro'}"]
        if self.data:
            argv += ["--volume", f"{self.data}:{CANDIDATE}/data:ro"]
        if self.engine.name == "podman":
            argv += ["--timeout", str(self.kill_s)]
        argv += ["--entrypoint", command[0], self.image, *command[1:]]
        with tempfile.TemporaryFile() as stdin:
            stdin.write(text)
            stdin.seek(0)
            process = subprocess.Popen(
                argv, env=environment(), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/"
            )
        try:
            ended = self._read(process, most, build=build)
            if ended.code:
                self._explain(name, command[0], ended)
            return ended
        finally:
            process.kill()
            process.wait()
            self.engine.remove(name)

    def _read(self, process: subprocess.Popen[bytes], most: int, *, build: bool) -> _Ended:
        output, errors = texts = bytearray(), bytearray()
        channel = select.poll()
        channel.register(self.channel, _POLLRDHUP)
        with selectors.PollSelector() as selector:
            for stream, text in zip((process.stdout, process.stderr), texts, strict=True):
                selector.register(stream or 0, selectors.EVENT_READ, text)
            while selector.get_map() and len(output) <= most:
                for key, _ in selector.select(_TICK_S):
                    data = os.read(key.fd, _CHUNK)
                    key.data.extend(data)
                    if not data:
                        selector.unregister(key.fileobj)
                del errors[: -4 * DETAIL_CHARS]
                if channel.poll(0):
                    raise SystemExit
                if build:
                    self._check_size()
        too_long = len(output) > most
        code = 0 if too_long else process.wait()
        return _Ended(code, bytes(output), errors.decode("utf-8", "replace")[-DETAIL_CHARS:])

    def _check_size(self) -> None:
        """Stop a build that fills the disk; the kernel limits single files only."""
        size, count = measure(self.folder, self.scratch_bytes // 4096)
        if size + 4096 * count > self.scratch_bytes:
            most = f"more than {self.scratch_bytes} bytes" if size < sys.maxsize else "a folder that is not readable"
            raise CommandFailedError(f"the build wrote {most}")

    def _explain(self, name: str, command: str, ended: _Ended) -> None:
        state = self._state(name)
        if state.get("OOMKilled"):
            raise CommandFailedError("the container exceeded its limit of memory", "out_of_memory")
        if state and not str(state.get("StartedAt", "")).startswith("0001"):
            return
        missing = ended.code == _NOT_FOUND or (ended.code == _NOT_EXECUTABLE and f'"{command}"' in ended.errors)
        if state and missing:
            raise CommandFailedError(f"{command} cannot be run in the image: {ended.errors.strip()[-300:]}")
        raise EngineError(ended.errors.strip()[-500:] or f"{self.engine.name} ended with status {ended.code}")

    def _state(self, name: str) -> dict[str, Any]:
        state = self.engine.call("inspect", "--format", "{{json .State}}", name)
        return dict(json.loads(state.text)) if state.ok else {}


def main(channel: int, complaints: int, order: str) -> NoReturn:
    """Serve one candidate or one build, by the JSON of ``ImageSandbox.start``; write ``complaints`` of the engine."""
    # Signals for the worker's group end the worker, and the worker's end is what ends this process.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    fields = json.loads(order)
    home = make_temporary_folder("image")
    try:
        folder = home / "candidate"
        (folder / "data" if fields["data"] else folder).mkdir(parents=True)
        folder.chmod(0o755)
        os.chdir(folder)
        engine, frame_bytes = Engine(**fields.pop("engine")), fields.pop("frame_bytes")
        serve(Wire(channel, frame_bytes), Containers(engine, folder=folder, channel=channel, **fields))
    except EngineError as error:
        os.write(complaints, str(error).encode("utf-8", "replace"))
    except (BrokenPipeError, ConnectionResetError, SystemExit):
        pass
    finally:
        os.chdir("/")
        remove(str(home))
        sys.stderr.flush()
    os._exit(0)


def _how(code: int) -> str:
    return ending(128 - code if code > 128 + signal.SIGHUP - 1 and code - 128 in set(signal.Signals) else code)


def _shortened(text: str) -> str:
    if len(text) <= DETAIL_CHARS:
        return text
    return f"{text[: DETAIL_CHARS * 3 // 4]}\n…\n{text[-DETAIL_CHARS // 5 :]}"
