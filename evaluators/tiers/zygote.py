"""The worker's end of a zygote: start it, request supervisors from it, and restart it when it dies."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

from evaluators.tiers.launch import TIERS, environment
from evaluators.tiers.sandbox import ProcessSpec
from evaluators.tiers.supervisor import CREDENTIALS, Supervisor, sender
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.priority import group_nice, set_group_nice

_START_S = 30.0
_STOP_S = 10.0
_NAMESPACES = (
    "Let bubblewrap create user namespaces (on Ubuntu `sysctl kernel.apparmor_restrict_unprivileged_userns=0`); in a"
    " container see docs/howto/deploy.md, sandbox tier."
)


class Zygote:
    """A zygote, which ends with its worker. ``missing``: failed imports with reasons; ``users``: its supervisors."""

    def __init__(
        self,
        tier: str,
        preload: tuple[str, ...],
        folders: Path | None,
        site: Path | None = None,
        cores: int = 1,
        toolchains: tuple[str, ...] = (),
    ) -> None:
        self.pid, self.users, self._preload = 0, 0, preload
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undo, theirs, os.fdopen(os.memfd_create("log"), "r+b") as log:
            undo.enter_context(self._requests)
            started = TIERS[tier](theirs.fileno(), preload, folders, site, toolchains)
            self._process = subprocess.Popen(
                started.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env=environment(cores, toolchains),
                cwd="/",
                start_new_session=True,
            )
            undo.callback(self._kill)
            theirs.close()
            self._requests.settimeout(_START_S)
            self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self.pid, self.missing = self._greet(tier, started.boot.encode(), log)
            self._requests.settimeout(None)
            set_group_nice(group_nice(), self.pid)  # the zygote has a new session, which includes its candidates
            undo.pop_all()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, needs: ProcessSpec, ended: Callable[[], None]) -> Supervisor:
        """Request a supervisor; ``ended`` is called after it was closed. ``OSError`` if the zygote is dead."""
        return Supervisor(self._requests, self.pid, needs, self._folder_name(needs.folder), ended)

    def close(self) -> None:
        """Stop the zygote, in tier A with all its processes; elsewhere supervisors stop when their sockets close."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._kill()

    def forget(self) -> None:
        """Close this process's copy of the socket after a fork: the zygote belongs to the parent process."""
        self._requests.close()

    def _folder_name(self, folder: Path | None) -> str:
        if folder is None:
            return ""
        return folder.name if "--as-pid-1" in self._process.args else str(folder)  # type: ignore[operator]

    def _greet(self, tier: str, boot: bytes, log: IO[bytes]) -> tuple[int, dict[str, str]]:
        problem = ""
        try:
            self._requests.send(boot)
            data, credentials, _, _ = self._requests.recvmsg(1 << 16, socket.CMSG_SPACE(CREDENTIALS.size))
            hello = json.loads(data or b"{}")
            if "missing" in hello:
                return sender(credentials), dict(hello["missing"])
            problem = str(hello.get("error", ""))
        except (OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        log.seek(0)
        message = log.read(4096).decode("utf-8", "replace").strip()
        by_bubblewrap = message.startswith("bwrap:")  # before any import
        while_ = f" while it imports {', '.join(self._preload)}" if self._preload and not by_bubblewrap else ""
        raise EvaluatorUnavailableError(
            f"The zygote of tier {tier} does not start{while_}: {message or problem or 'it ended without output'}",
            remedy=_NAMESPACES
            if by_bubblewrap and re.search("permi|namespace", message, re.IGNORECASE)
            else "Run `speciate doctor` to see which tiers work on this machine.",
        )

    def _kill(self) -> None:
        if self.pid and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
