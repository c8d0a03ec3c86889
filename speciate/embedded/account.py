"""Account that runs PostgreSQL: the invoking user or, because PostgreSQL refuses root, an unprivileged account."""

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from speciate.embedded.errors import EmbeddedServerError


@dataclass(frozen=True)
class ServerAccount:
    """Existing unprivileged account that runs PostgreSQL for a root parent; never created by Speciate."""

    name: str
    uid: int
    gid: int

    def can_reach(self, path: Path) -> bool:
        resolved = path.resolve()
        return all(self._may_enter(step) for step in (*reversed(resolved.parents), resolved) if step.is_dir())

    def _may_enter(self, directory: Path) -> bool:
        status = directory.stat()
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


def server_account() -> ServerAccount | None:
    """Return the account to switch to, or None when the invoking user, who is not root, runs everything.

    It is `nobody`, or the value of `SPECIATE_POSTGRES_USER`.
    """
    if os.geteuid() != 0:
        return None
    name = os.environ.get("SPECIATE_POSTGRES_USER", "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        entry = None
    if entry is None or entry.pw_uid == 0:
        raise EmbeddedServerError(
            f"PostgreSQL does not run as root, and {name!r} is not an unprivileged account of this machine. "
            "Name one in SPECIATE_POSTGRES_USER, or start Speciate as an ordinary user."
        )
    return ServerAccount(name, entry.pw_uid, entry.pw_gid)
