"""System calls that Python does not offer. Every failure is an ``OSError`` that names the call."""

from __future__ import annotations

import ctypes
import fcntl
import os
from typing import NoReturn

from .syscalls import number

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID = 0x20000, 0x08000000, 0x10000000, 0x20000000
_SIGCHLD = 17
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CAPABILITY_VERSION_3 = 0x20080522

_MNT_DETACH = 2
_ANY_ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384

LOW_FDS = 64
"""Descriptors below this number are those of a contained process; ``out_of_the_way`` returns others."""

# PyDLL keeps the GIL: if a fork released it, the child could wait for it forever.
_libc = ctypes.PyDLL(None, use_errno=True)
_syscall, _mount, _umount, _unshare = _libc.syscall, _libc.mount, _libc.umount2, _libc.unshare
# Declared, so that a call in a fresh fork makes few objects: each page that a fork writes to is copied.
_syscall.argtypes = [ctypes.c_long] * 6
_syscall.restype = ctypes.c_long
_mount.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p]


def call(name: str, first: int = 0, second: int = 0, third: int = 0, fourth: int = 0, fifth: int = 0) -> int:
    result: int = _syscall(number(name), first, second, third, fourth, fifth)
    return result if result >= 0 else _fail(name)


def prctl(option: int, argument: int = 0) -> None:
    call("prctl", option, argument)


def die_with_parent() -> None:
    prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_dumpable(dumpable: bool) -> None:
    """Allow or forbid other processes of this user to read this one's memory, descriptors and environment."""
    prctl(_PR_SET_DUMPABLE, int(dumpable))


def forbid_new_privileges() -> None:
    """Permanently disable set-user-id programs and file capabilities; seccomp and Landlock require it."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def fork_apart() -> int:
    """Fork into new user, process, mount and IPC namespaces as ``os.fork`` does, but without any hooks."""
    return call("clone", _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNS | _CLONE_NEWIPC | _SIGCHLD)


def renew_ipc() -> None:
    if _unshare(_CLONE_NEWIPC) < 0:
        _fail("unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    if _mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) < 0:
        _fail(f"mount {target}")


def unmount(target: bytes) -> None:
    if _umount(target, _MNT_DETACH) < 0:
        _fail(f"unmount {target!r}")


def wait(pid: int, status: int, usage: int) -> None:
    """Wait for a child to end; the kernel writes its status and usage to these addresses and to no other place."""
    call("wait4", pid, status, 0, usage)


def childless() -> bool:
    return bool(_syscall(number("waitid"), 0, 0, 0, _ANY_ENDED, 0) < 0)


def out_of_the_way(fd: int) -> int:
    """Return a descriptor with a high number, which no executed program inherits, and close the given one."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LOW_FDS)
    os.close(fd)
    return high


_header, _nothing = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
_no_capabilities = ctypes.addressof(_header), ctypes.addressof(_nothing)


def drop_capabilities() -> None:
    """Drop every capability; with ``no_new_privs`` set, no ``exec`` restores one."""
    call("capset", *_no_capabilities)


def _fail(what: str) -> NoReturn:
    error = ctypes.get_errno()
    raise OSError(error, f"{what}: {os.strerror(error)}")
