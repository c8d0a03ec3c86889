"""Restrict file access, TCP and signals with Landlock (kernel documentation, userspace-api/landlock)."""

from __future__ import annotations

import ctypes
import os
import stat
import struct

from .kernel import call

READ_FILE = 1 << 2
READ = READ_FILE | 1 << 3  # and folders
EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
CHANGE = 1 << 1 | (1 << 13) - (1 << 4)  # write, and remove or create every kind of file
TRUNCATE = 1 << 14
_REFER, _IOCTL_DEV = 1 << 13, 1 << 15
_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | _IOCTL_DEV
_NET = 0b11  # bind and connect by TCP
_SCOPED = 0b11  # abstract unix sockets, signals to processes outside

_CONNECT_TCP = 1 << 1

_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2

WRITES_SINCE = 3
"""First ABI that also controls truncation, so that it covers every way to change a file."""

NETWORK_SINCE = 4
"""First ABI that controls TCP."""


def abi() -> int:
    try:
        return call("landlock_create_ruleset", 0, 0, _VERSION)
    except OSError:
        return 0


def handled(version: int) -> tuple[int, int, int]:
    files = (1 << 13) - 1
    files |= _REFER if version >= 2 else 0
    files |= TRUNCATE if version >= WRITES_SINCE else 0
    files |= _IOCTL_DEV if version >= 5 else 0
    return files, _NET if version >= NETWORK_SINCE else 0, _SCOPED if version >= 6 else 0


def restrict(version: int, allowed: dict[str, int], only: int | None = None, port: int | None = None) -> None:
    """Forbid what Landlock controls, except rights beneath some paths and TCP to ``port`` on any machine."""
    rules = ruleset(version, allowed, only)
    if port is not None and version >= NETWORK_SINCE:
        _add(rules, _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port))
    enforce(rules)
    os.close(rules)


def ruleset(version: int, allowed: dict[str, int], only: int | None = None) -> int:
    """Return rules for ``enforce``, without missing paths; ``only`` are rights to forbid instead of everything."""
    files, net, scoped = handled(version) if only is None else (only, 0, 0)
    words = [files, net, scoped][: 1 if version < NETWORK_SINCE else 2 if version < 6 else 3]
    attributes = (ctypes.c_uint64 * len(words))(*words)
    rules = call("landlock_create_ruleset", ctypes.addressof(attributes), ctypes.sizeof(attributes))
    for path, rights in allowed.items():
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            own = files if stat.S_ISDIR(os.fstat(fd).st_mode) else files & _FILE_RIGHTS
            _add(rules, _PATH_BENEATH, struct.pack("=Qi", rights & own, fd))
        finally:
            os.close(fd)
    return rules


def _add(rules: int, kind: int, rule: bytes) -> None:
    buffer = ctypes.create_string_buffer(rule)  # lives until the call has read it
    call("landlock_add_rule", rules, kind, ctypes.addressof(buffer))


def enforce(rules: int) -> None:
    call("landlock_restrict_self", rules)


def beside(path: str, hidden: set[str]) -> list[str]:
    """Return resolved paths beneath one, outside hidden folders: Landlock cannot revoke rights beneath a path."""
    if not any(folder.startswith(f"{path}/") for folder in hidden):
        return [path]
    with os.scandir(path) as entries:
        # The target of a link needs rights of its own.
        around = [entry.path for entry in entries if entry.path not in hidden and not entry.is_symlink()]
    return [each for sibling in around for each in beside(sibling, hidden)]
