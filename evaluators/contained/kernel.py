"""System calls that Python does not offer. Every failure is an ``OSError`` that names the call."""

from __future__ import annotations

import ctypes
import os

from .syscalls import number

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID = 0x20000, 0x08000000, 0x10000000, 0x20000000
_SIGCHLD = 17
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_CAPABILITY_VERSION_3 = 0x20080522

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC = 1, 2, 4, 8, 4096, 16384

# PyDLL keeps the GIL: if a fork released it, the child could wait for it forever.
_libc = ctypes.PyDLL(None, use_errno=True)
_syscall, _mount = _libc.syscall, _libc.mount
_syscall.restype = ctypes.c_long


def call(name: str, *arguments: int) -> int:
    """Make a system call.

    Raises:
        OSError: The call failed.
    """
    result: int = _syscall(ctypes.c_long(number(name)), *map(ctypes.c_ulong, arguments))
    return _checked(result, name)


def prctl(option: int, argument: int = 0) -> None:
    """Change a property of this process; raises as ``call`` does."""
    call("prctl", option, argument, 0, 0, 0)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, 9)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_dumpable(dumpable: bool) -> None:
    """Allow or forbid other processes of this user to read this one's memory, descriptors and environment."""
    prctl(_PR_SET_DUMPABLE, int(dumpable))


def forbid_new_privileges() -> None:
    """Permanently disable set-user-id programs and file capabilities; seccomp and Landlock require it."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def fork_apart() -> int:
    """Fork into new user, process, mount and IPC namespaces; like ``os.fork`` it returns twice.

    This skips the interpreter's fork hooks, which would cost the child a hundred copied pages. The zygote has one
    thread, so the child inherits no held lock. The candidate, which the child starts with ``os.fork``, gets new locks
    and random state from the hooks.

    Raises:
        OSError: The kernel or a limit forbids namespaces.
    """
    return call("clone", _CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNS | _CLONE_NEWIPC | _SIGCHLD, 0, 0, 0, 0)


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system; raises as ``call`` does."""
    texts = [ctypes.c_char_p(text.encode()) for text in (source, target, kind)]
    _checked(_mount(*texts, ctypes.c_ulong(flags), ctypes.c_char_p(options.encode())), f"mount {target}")


def drop_capabilities() -> None:
    """Drop every capability; with ``no_new_privs`` set, no ``exec`` restores one."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call("capset", ctypes.addressof(header), ctypes.addressof(nothing))


def _checked(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result
