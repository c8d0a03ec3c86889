"""PostgreSQL: create the cluster once, build the server's command, check readiness."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from speciate.embedded.account import ServerAccount
from speciate.embedded.binaries import PostgresBinaries
from speciate.embedded.errors import EmbeddedServerError
from speciate.embedded.liveness import runs
from speciate.embedded.processes import ChildCommand

NAME = "postgres"
ROLE = DATABASE = "speciate"

_INITDB_LIMIT_S = 60.0
_GRACE_S = 10.0
_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    # The kernel caches the rest; what a server process has used counts as its memory for as long as it lives.
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Speciate's queries are short: JIT compilation costs more than it saves.
    "jit": "off",
    # A new table soon outgrows plans made while it was empty; ANALYZE invalidates them.
    "autovacuum_naptime": "5s",
    "cluster_name": "speciate",
}


@dataclass(frozen=True)
class Postgres:
    """One cluster: its programs, its files, and the account that runs it."""

    binaries: PostgresBinaries
    """Programs that the account can read."""
    cluster: Path
    socket_dir: Path
    """Private directory of the account, for the socket."""
    log_file: Path
    account: ServerAccount | None
    """Account that runs the server; None for the invoking user."""
    lock_fd: int
    """Descriptor of the data directory's lock, kept open by every program that uses the cluster."""

    def ensure_cluster(self, password: str) -> None:
        """Create the cluster if it does not exist; raise `EmbeddedServerError` if another major version created it."""
        version_file = self.cluster / "PG_VERSION"
        if not version_file.exists():
            self._create(password)
            return
        major = version_file.read_text(errors="replace").strip()
        if not major.isdecimal():  # a crash of the machine can empty a file, or fill it with zeros
            remedy = "Restore the database from a backup, or start on an empty directory with --data-dir."
            raise EmbeddedServerError(f"{version_file} is damaged. {remedy}")
        if int(major) != self.binaries.major:
            raise EmbeddedServerError(
                f"{self.cluster} was created by PostgreSQL {major}, but the programs found are PostgreSQL "
                f"{self.binaries.major}. Point SPECIATE_POSTGRES_BIN at the bin directory of a PostgreSQL {major}, "
                "or start on an empty directory with --data-dir."
            )

    def command(self) -> ChildCommand:
        self._forget_dead_postmaster()
        settings = _SETTINGS | {"unix_socket_directories": str(self.socket_dir)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return ChildCommand(
            name=NAME,
            argv=[self.binaries.bin_dir / "postgres", "-D", self.cluster, *options],
            env=_ENVIRONMENT,
            log_file=self.log_file,
            user=(self.account.uid, self.account.gid) if self.account else None,
            stop_signal=signal.SIGINT,  # "fast" shutdown: end sessions, leave the cluster clean
            grace_s=_GRACE_S,
        )

    def ready(self, pid: int) -> bool:
        return is_ready(self.cluster, self.socket_dir) and _postmaster_file(self.cluster)[:1] == [str(pid)]

    def _create(self, password: str) -> None:
        draft = self.cluster.with_name(self.cluster.name + ".new")
        shutil.rmtree(draft, ignore_errors=True)  # left by a killed start
        draft.mkdir(mode=0o700)
        if self.account:
            os.chown(draft, self.account.uid, self.account.gid)
        password_file = self._hand_over(password)
        try:
            options = ["--no-sync", "--no-instructions", "--encoding=UTF8", "--no-locale", "--auth=scram-sha-256"]
            self._run(["initdb", *options, "-U", ROLE, f"--pwfile={password_file}", "-D", draft])
            single_user: list[str | Path] = ["postgres", "--single", "-F", "-D", draft, "postgres"]
            self._run(single_user, text=f"CREATE DATABASE {DATABASE};\n")
            draft.rename(self.cluster)  # atomic: complete or absent
        finally:
            password_file.unlink(missing_ok=True)
            shutil.rmtree(draft, ignore_errors=True)

    def _hand_over(self, password: str) -> Path:
        # A file, because initdb reads a password neither from its environment nor from a pipe of another user.
        path = self.socket_dir / "password"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(password)
            if self.account:
                os.fchown(file.fileno(), self.account.uid, self.account.gid)
        return path

    def _run(self, argv: Sequence[str | Path], text: str = "") -> None:
        switch: dict[str, Any] = {}
        if self.account:
            switch = {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}
        program, *arguments = argv
        done = subprocess.run(
            [self.binaries.bin_dir / program, *arguments],
            input=text,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_ENVIRONMENT,
            cwd="/",
            timeout=_INITDB_LIMIT_S,
            check=False,
            pass_fds=[self.lock_fd],
            **switch,
        )
        with self.log_file.open("a") as log:
            log.write(done.stdout)
        if done.returncode != 0:
            last = done.stdout.strip().splitlines()[-5:]
            raise EmbeddedServerError(
                f"{program} could not make {self.cluster} (status {done.returncode}): {' | '.join(last)}"
            )

    def _forget_dead_postmaster(self) -> None:
        # After kill −9 the process id may belong to another program of the account or to an unreaped zombie.
        # PostgreSQL mistakes both for a living server, and refuses a file that a crash of the machine emptied. This
        # process holds the lock, which every server inherits.
        number = next(iter(_postmaster_file(self.cluster)), "")
        if not (number.isdecimal() and runs(int(number), "postgres")):
            (self.cluster / "postmaster.pid").unlink(missing_ok=True)


def url(socket_dir: Path, password: str) -> str:
    return f"postgresql+psycopg://{ROLE}:{password}@/{DATABASE}?{urlencode({'host': socket_dir}, safe='/')}"


def is_ready(cluster: Path, socket_dir: Path) -> bool:
    """Return True if a server accepts connections to a cluster in a directory of sockets."""
    lines = _postmaster_file(cluster)
    return len(lines) >= 8 and lines[4] == str(socket_dir) and lines[7].strip() == "ready"


def _postmaster_file(cluster: Path) -> list[str]:
    try:
        return (cluster / "postmaster.pid").read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
