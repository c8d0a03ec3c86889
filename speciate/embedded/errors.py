"""Errors of the embedded servers; each message contains the remedy."""

from pathlib import Path
from typing import Final

from speciate.domain.errors import ConflictError, UnavailableError

START_BYTES: Final = 64 << 20
"""Free space that a start needs: most of it for a new cluster."""


class EmbeddedServerError(UnavailableError, slug="embedded-server", title="The embedded servers do not work"):
    """The embedded PostgreSQL or Valkey could not be started, reached or stopped."""


class GuardEndedError(EmbeddedServerError):
    """The guard of the processes was killed; the kernel ends what it guarded."""


class BinariesNotFoundError(EmbeddedServerError):
    """No searched place contains a usable server program."""


class DiskFullError(EmbeddedServerError):
    """PostgreSQL cannot start for lack of space."""

    def __init__(self, data_dir: Path, free_bytes: int) -> None:
        super().__init__(
            f"the disk is full: {free_bytes >> 20} MiB are left for {data_dir}, and PostgreSQL needs about"
            f" {START_BYTES >> 20} to start. What is stored there is kept: free space and repeat the command, or choose"
            " another directory with --data-dir."
        )


class DataDirectoryBusyError(EmbeddedServerError, ConflictError):
    """Another process runs its servers on this data directory."""

    def __init__(self, data_dir: Path, pid: int | None, shared_dir: Path | None = None) -> None:
        """Name the process that holds the directory; ``shared_dir`` is the runtime directory of local commands."""
        holder = f"process {pid}" if pid else "the servers of a process that has ended, which are still stopping"
        remedy = f"Stop it (kill {pid})" if pid else "Try again in a few seconds"
        if shared_dir is not None:
            holder = f"a command that runs without a service{f', process {pid}' if pid else ''}"
            remedy = "Wait until it ends, or stop it with Ctrl-C, which pauses its run"
        super().__init__(f"{data_dir} is in use by {holder}. {remedy}, or choose another directory with --data-dir.")
        self.pid = pid
        self.runtime_dir = shared_dir

    @property
    def lasts(self) -> bool:
        """False if the servers are stopping."""
        return self.pid is not None or self.runtime_dir is not None
