"""Becomes an ordinary user and runs a command: ``python as_user.py UID FOLDER... -- COMMAND...``.

Where a folder that the command needs lies behind one that is closed to others (``/root``, mode 0700), the way to it is
opened in a mount namespace of the command's own. Nothing of that is seen, or left, outside.
"""

import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Take the command line and never return."""
    user, arguments = int(sys.argv[1]), sys.argv[2:]
    end = arguments.index("--")
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)
    _open_way([Path(folder).resolve() for folder in arguments[:end]])
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execv(arguments[end + 1], arguments[end + 1 :])


def _open_way(folders: list[Path]) -> None:
    """Cover every closed parent by an empty, open folder in which only the wanted ones are to be found."""
    behind = {folder: gate for folder in folders if (gate := _closed_parent(folder)) is not None}
    held = {folder: os.open(folder, os.O_PATH) for folder in behind}
    for gate in sorted(set(behind.values())):
        _mount("none", str(gate), "tmpfs", 0, "mode=755,size=64k")
    for folder, fd in held.items():
        folder.mkdir(parents=True, exist_ok=True)
        _mount(f"/proc/self/fd/{fd}", str(folder), "", _MS_BIND | _MS_REC)
        os.close(fd)


def _closed_parent(folder: Path) -> Path | None:
    return next((parent for parent in reversed(folder.parents) if not parent.stat().st_mode & 0o1), None)


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    texts = [ctypes.c_char_p(text.encode()) for text in (source, target, kind)]
    _check(_libc.mount(*texts, ctypes.c_ulong(flags), ctypes.c_char_p(options.encode())), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


if __name__ == "__main__":
    main()
