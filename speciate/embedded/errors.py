"""Errors of the embedded servers; each message contains the remedy."""

from pathlib import Path

from speciate.domain.errors import ConflictError, UnavailableError


class EmbeddedServerError(UnavailableError):
    """The embedded PostgreSQL or Valkey could not be started, reached or stopped."""

    slug = "embedded-server"
    title = "The embedded servers do not work"


class BinariesNotFoundError(EmbeddedServerError):
    """No searched place contains a usable server program."""


class ServerAccountError(EmbeddedServerError):
    """PostgreSQL does not run as root, and no unprivileged account or readable place exists for it."""


class RuntimeDirectoryError(EmbeddedServerError):
    """No writable directory has a path short enough for a unix socket."""


class ClusterVersionError(EmbeddedServerError):
    """Another major version of PostgreSQL created the cluster in the data directory."""

    def __init__(self, cluster: Path, major: int, available: int) -> None:
        super().__init__(
            f"{cluster} was created by PostgreSQL {major}, but the programs found are PostgreSQL {available}. "
            f"Point SPECIATE_POSTGRES_BIN at the bin directory of a PostgreSQL {major}, "
            "or start on an empty directory with --data-dir."
        )


class PasswordsLostError(EmbeddedServerError):
    """A cluster exists, but the file with its password is missing or invalid."""


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


class ServerStartError(EmbeddedServerError):
    """A server ended or did not answer before it became ready."""


class GuardError(EmbeddedServerError):
    """The guard process ended, or did not answer."""
