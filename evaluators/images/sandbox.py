"""Containers of an image as a sandbox: each contained process is a relay to a container engine."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from evaluators.channel import ENVELOPE_BYTES
from evaluators.contained.requests import MESSAGE_BYTES
from evaluators.images.engine import Engine, environment
from evaluators.session import PATIENCE
from evaluators.tiers.folders import DATA, ProblemFolders
from evaluators.tiers.launch import core_variables
from evaluators.tiers.sandbox import ProcessSpec, ResourceUsage
from evaluators.tiers.scheduling import SchedulingDelay
from evaluators.tiers.supervisor import pipe
from speciate.domain.errors import EvaluatorUnavailableError

_STOP_S: Final = 40.0
_KILL_MARGIN_S: Final = 60
_SWEEP_S: Final = 600.0
_BOOT: Final = (
    "import sys; sys.path[:] = {path!r}; from evaluators.images.relay import main;"
    " main({channel}, {complaints}, sys.argv[1])"
)


class ImageSandbox:
    """Starts containers of one image, which is on this machine; a ``Sandbox``."""

    def __init__(self, engine: Engine, image: str, writable: tuple[str, ...], folders: ProblemFolders) -> None:
        self.name, self.folders = engine.name, folders
        self._engine, self._image, self._writable = engine, image, writable

    def start(self, needs: ProcessSpec) -> "ImageSupervisor":
        limits = needs.limits
        order = {
            "engine": asdict(self._engine),
            "image": self._image,
            "options": self._engine.options(limits, self._writable, core_variables(limits.cores)),
            "data": "" if needs.folder is None else str(needs.folder / DATA),
            "frame_bytes": limits.output_bytes + ENVELOPE_BYTES // 2,
            "scratch_bytes": limits.tmp_bytes,
            "kill_s": int(PATIENCE * limits.wall_s) + _KILL_MARGIN_S,
        }
        return ImageSupervisor(self._engine, json.dumps(order))


class ImageSupervisor:
    """Starts relays one after another; a ``ProcessSupervisor``."""

    def __init__(self, engine: Engine, order: str) -> None:
        self.idle, self.closed = True, False
        self._engine, self._order = engine, order
        self._running: ImageProcess | None = None

    def start(self, ended: Callable[[], None]) -> "ImageProcess":
        self.idle = False

        def stopped() -> None:
            self.idle, self._running = not self.closed, None
            ended()

        self._running = ImageProcess(self._engine, self._order, stopped)
        return self._running

    def close(self) -> None:
        self.closed, self.idle = True, False
        if self._running is not None:
            self._running.abandon()


class ImageProcess:
    """A relay, which does not compute, so that its delay is 0; a ``SandboxedProcess``."""

    def __init__(self, engine: Engine, order: str, ended: Callable[[], None]) -> None:
        self._engine, self._ended = engine, ended
        self.waiting = SchedulingDelay(0)
        self._why, self._by_itself = "", False
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            here, there = socket.socketpair()
            self.channel = undo.enter_context(here)
            theirs.enter_context(there)
            err, their_err = pipe(undo, theirs)
            self._complaints, complaints = pipe(undo, theirs)
            self.logs: Mapping[str, int] = {"stderr": err}
            paths = [str(Path(__file__).parents[2]), *sys.path]
            boot = _BOOT.format(path=paths, channel=there.fileno(), complaints=complaints)
            self._process = subprocess.Popen(
                [sys.executable, "-s", "-P", "-S", "-c", boot, order],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=their_err,
                pass_fds=(there.fileno(), complaints),
                env=environment(),
                cwd="/",
                start_new_session=True,
            )
            undo.pop_all()
        os.set_blocking(err, False)

    def wait_ready(self, timeout_s: float) -> bool:  # noqa: ARG002  # messages wait in the channel
        return self._process.poll() is None

    def stop(self, *, grace_s: float = 0.0) -> ResourceUsage:
        """Let the relay end its container, and return how it ended; usage in a container is not measured."""
        if not self._why:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
            self._by_itself = self._process.poll() is not None
            self.abandon()
            self._why = os.read(self._complaints, MESSAGE_BYTES).decode("utf-8", "replace")
            self._ended()
        if self._why:
            self.close()
            raise EvaluatorUnavailableError(
                f"{self._engine.name} does not run containers on this machine: {self._why.strip()[-500:]}",
                remedy="Correct the installation of the engine on the worker; `speciate doctor` lists the engines.",
            )
        code = self._process.returncode
        return ResourceUsage(code << 8 if code >= 0 else -code, self._by_itself)

    def close(self) -> None:
        if self.channel.fileno() >= 0:
            self.channel.close()
            os.close(self.logs["stderr"])
            os.close(self._complaints)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self.channel.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:  # the engine hangs; ``Engine.sweep`` finds the container by its label
            self._process.kill()
            self._process.wait()
        if self._process.returncode < 0:  # killed, so that it left its container
            self._engine.sweep()


class ImageStore:
    """Images that this process has found or brought onto this machine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: set[tuple[str, str]] = set()
        self._swept_at = 0.0

    def require(self, engine: Engine, image: str) -> None:
        """Prepare an image on first use, and remove containers that killed workers left."""
        with self._lock:
            if time.monotonic() - self._swept_at >= _SWEEP_S or not self._swept_at:
                self._swept_at = time.monotonic()
                engine.sweep()
            if (engine.name, image) not in self._ready:
                engine.prepare(image)
                self._ready.add((engine.name, image))

    def forget(self, image: str) -> None:
        """Look for an image again at its next use: an evaluation in it failed, perhaps because it was removed."""
        with self._lock:
            self._ready = {pair for pair in self._ready if pair[1] != image}
