"""System call filter of contained processes: an allowlist as a classic BPF program (``man 2 seccomp``).

Other calls fail, most of them with EPERM. The filter compares only numeric arguments: the target of a pointer can
change after the comparison.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import struct
import sys
from collections.abc import Sequence
from enum import Enum

from .kernel import call
from .syscalls import ATTRIBUTES, CHANGES, DESCRIPTORS, MEMORY, OWN, PATHS, TASKS, TIME, table

Term = tuple[int, int, int]
"""(argument, mask, value): true if the argument's low 32 bits under the mask equal the value."""

Alternatives = tuple[tuple[Term, ...], ...]
"""Alternatives that allow a call: all terms of one must be true. ``ALWAYS`` has one alternative without terms."""

ALWAYS: Alternatives = ((),)

ASK: Alternatives = ()
"""The process that listens to the filter decides; without one the call fails."""


class SyscallPolicy(Enum):
    """Permission to start threads, programs or processes."""

    THREADS = "threads"
    """Threads only, no processes and no ``execve``: the policy for candidates."""
    PROGRAM = "program"
    """Threads, and one ``execve``, of the program itself: the policy for compiled candidates; see ``execute_once``."""
    PROCESSES = "processes"
    """Processes within the namespaces: the policy for building and starting candidates in other languages."""
    SCRIPT = "script"
    """Processes within the namespaces under this same filter: the policy for scripts that may start processes."""

    @property
    def starts_processes(self) -> bool:
        return self in (SyscallPolicy.PROCESSES, SyscallPolicy.SCRIPT)


_WHOLE = 0xFFFFFFFF
_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020000  # every namespace
_FCNTL = (0, 1, 2, 3, 4, 1030, 1032, 1034)  # no owner, signal or lock commands, which affect other processes
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A)  # terminal size, bytes waiting, blocking, cloexec
_RECEIVE_QUESTION, _SEND_ANSWER = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND
# Two processes that map one file share futexes on its pages, even read-only ones. Of those only the operations are
# allowed that libraries cannot do without: waits of ``pthread_join``, and the wake of libstdc++'s one-time
# initialisation and futures, without which XLA waits forever.
_FUTEX_PRIVATE = 0x80
_FUTEX_SHARED = (0, 1, 9, 9 | 0x100)  # WAIT, WAKE, WAIT_BITSET, and with the real-time clock
# CPU clocks of other processes have negative numbers that hold the process id; -8 to -2 are the caller's own.
_CLOCKS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, *(clock & 0xFFFFFFFF for clock in (-8, -7, -6, -4, -3, -2)))
_PRCTL = (3, 15, 16, 23, 39, 0x53564D41)  # names, and queries
_PR_SET_PDEATHSIG = 1
_MAP_PRIVATE, _MAP_TYPE, _MAP_ANONYMOUS = 2, 0xF, 0x20
_OPEN_CHANGES = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | 0o20000000  # the last one is the bit of O_TMPFILE

_AF_UNIX, _SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 1, 5, 0xF

_STARTING = frozenset({"clone", "clone3", "fork", "vfork", "execve", "execveat", "setpgid", "setsid", "pidfd_open"})
_SIGNALS = frozenset({"kill", "tkill", "tgkill"})
_RESTRICTED = _STARTING | _SIGNALS | {"prlimit64", "prctl", "fcntl", "ioctl", "socketpair", "openat2", "mmap"}
_RESTRICTED |= {"futex", "clock_gettime", "clock_getres", "clock_nanosleep", "timer_create"}


def allowed(syscall_policy: SyscallPolicy, *, pid: int, changes: bool, open_flags: bool) -> dict[str, Alternatives]:
    """Return the calls that a process may make, which may send signals to ``pid`` only.

    ``changes``: it may change files; mounts and Landlock decide which ones. ``open_flags``: it may open files only for
    reading, where Landlock is too old to control all writes.
    """
    plain = DESCRIPTORS | PATHS | MEMORY | TASKS | OWN | TIME | (CHANGES if changes else {})
    calls = dict.fromkeys(plain.keys() - _RESTRICTED, ALWAYS)
    calls |= {
        "clone": _one_of(0, (_CLONE_THREAD,), _CLONE_THREAD | _CLONE_NEW),
        "kill": _one_of(0, (pid,)),
        "tgkill": _one_of(0, (pid,)),
        "prlimit64": _one_of(0, (0,)),  # not those of the supervisor, which has the same user
        # No anonymous pages that are shared: the kernel keeps them when a process drops them from its memory, where
        # they are counted.
        "mmap": (((3, _MAP_ANONYMOUS, 0),), ((3, _MAP_TYPE, _MAP_PRIVATE),)),
        "prctl": _one_of(0, _PRCTL),
        "fcntl": _one_of(1, _FCNTL),
        "ioctl": _one_of(1, _IOCTL),
        "futex": (((1, _FUTEX_PRIVATE, _FUTEX_PRIVATE),), *_one_of(1, _FUTEX_SHARED)),
        **dict.fromkeys(("clock_gettime", "clock_getres", "clock_nanosleep", "timer_create"), _one_of(0, _CLOCKS)),
        # Streams only: a datagram socket can send to any other socket by name.
        "socketpair": (((0, _WHOLE, _AF_UNIX), (1, _SOCK_TYPE, _SOCK_STREAM)),),
    }
    if open_flags:
        calls |= {"open": _one_of(1, (0,), _OPEN_CHANGES), "openat": _one_of(2, (0,), _OPEN_CHANGES)}
    if syscall_policy is SyscallPolicy.PROGRAM:
        calls |= {"execve": ASK}
    if syscall_policy is SyscallPolicy.PROCESSES:
        # The process installs the next filter on its children.
        calls |= dict.fromkeys(_STARTING - {"clone", "clone3"} | _SIGNALS | {"prctl", "seccomp"}, ALWAYS)
        calls |= {"futex": ALWAYS}  # compilers and interpreters share locks between processes
        calls["ioctl"] += _one_of(1, (_RECEIVE_QUESTION, _SEND_ANSWER))
    if syscall_policy is SyscallPolicy.SCRIPT:
        calls |= dict.fromkeys(_STARTING - {"clone", "clone3", "execveat"} | _SIGNALS | {"futex"}, ALWAYS)
        calls |= {"prctl": _one_of(0, (*_PRCTL, _PR_SET_PDEATHSIG))}
    if syscall_policy.starts_processes:
        # Rust's library reports through such a pair why a program does not start. Its ends have no names either.
        calls["socketpair"] += (((0, _WHOLE, _AF_UNIX), (1, _SOCK_TYPE, _SOCK_SEQPACKET)),)
        calls |= {"clone": _one_of(0, (0,), _CLONE_NEW)}  # in a new user namespace it would have every capability
    return calls


def template(syscall_policy: SyscallPolicy, *, changes: bool, open_flags: bool) -> bytes:
    """Return a filter template, assembled once in the zygote; ``Filter`` inserts the process id."""
    return assemble(allowed(syscall_policy, pid=_ANY_PID, changes=changes, open_flags=open_flags))


class Filter:
    """A filter that is ready for a fork, which inserts its own process id and installs it with a single call."""

    def __init__(self, template: bytes) -> None:
        self._code = ctypes.create_string_buffer(template, len(template))
        mark = struct.pack("<I", _ANY_PID)
        self._places = [at for at in range(4, len(template), 8) if template[at : at + 4] == mark]
        self._header = ctypes.create_string_buffer(
            struct.pack("@HxxxxxxQ", len(template) // 8, ctypes.addressof(self._code))
        )
        self._address = ctypes.addressof(self._header)

    def install(self, *, listen: bool = False) -> int:
        """Apply the filter to this process and its children; ``listen`` returns a descriptor for ``execute_once``."""
        own = os.getpid()
        for place in self._places:
            struct.pack_into("<I", self._code, place, own)
        return call("seccomp", _SET_MODE_FILTER, _NEW_LISTENER if listen else 0, self._address)


def execute_once(listener: int) -> None:
    """Allow the next ``execve`` of a process with a filter, no further one (ENOSYS), and close the listener."""
    try:
        question, answer = bytearray(_QUESTION_BYTES), bytearray(_ANSWER.size)
        fcntl.ioctl(listener, _RECEIVE_QUESTION, question)
        _ANSWER.pack_into(answer, 0, int.from_bytes(question[:8], sys.byteorder), 0, 0, _CONTINUE)
        fcntl.ioctl(listener, _SEND_ANSWER, answer)
    finally:
        os.close(listener)


_SET_MODE_FILTER, _NEW_LISTENER = 1, 1 << 3
_QUESTION_BYTES, _ANSWER, _CONTINUE = 80, struct.Struct("=Qqii"), 1  # struct seccomp_notif; id, result, error, flags
_ANY_PID = 0x7EC1A7ED  # above every process id, and unique in a filter
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_KILL_PROCESS, _ALLOW, _ERRNO, _USER_NOTIF = 0x80000000, 0x7FFF0000, 0x00050000, 0x7FC00000
_EPERM, _ENOSYS, _ENOTSUP = 1, 38, 95
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NR, _ARCH, _ARGUMENTS = 0, 4, 16

_ANSWERED = {
    **dict.fromkeys(("clone3", "openat2"), _ENOSYS),  # libraries fall back to an older call only if a newer is missing
    **dict.fromkeys(ATTRIBUTES, _ENOTSUP),  # as on a file system without attributes: `shutil.copy2` then goes on
}
"""Denied calls with another answer than EPERM."""


def assemble(calls: dict[str, Alternatives], machine: str | None = None) -> bytes:
    """Return the filter for a machine (default: this one), 8 bytes per instruction.

    A call of another architecture (32-bit, x32) ends the process, because its numbers have other meanings.
    """
    machine = machine or os.uname().machine
    numbers = table(machine)
    head = [
        _op(_LOAD, _ARCH),
        _op(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _op(_RETURN, _KILL_PROCESS),
        _op(_LOAD, _NR),
        _op(_JUMP_AT_LEAST, _X32_BIT, 0, 1),
        _op(_RETURN, _KILL_PROCESS),
    ]
    actions = {numbers[name]: [_op(_RETURN, _ERRNO | error)] for name, error in _ANSWERED.items()}
    actions |= {numbers[name]: _check(alternatives) for name, alternatives in calls.items() if name in numbers}
    tests = [[_op(_JUMP_EQUAL, number, 0, len(action)), *action] for number, action in actions.items()]
    return b"".join([*head, *itertools.chain(*tests), _op(_RETURN, _ERRNO | _EPERM)])


def _check(alternatives: Alternatives) -> list[bytes]:
    allow, deny = _op(_RETURN, _ALLOW), _op(_RETURN, _ERRNO | _EPERM)
    if alternatives == ALWAYS:
        return [allow]
    if alternatives == ASK:
        return [_op(_RETURN, _USER_NOTIF)]
    code: list[bytes] = []
    for terms in alternatives:
        tests: list[bytes] = []
        for argument, mask, value in reversed(terms):
            tests = [*_argument(argument, mask), _op(_JUMP_EQUAL, value, 0, len(tests) + 1), *tests]
        code += [*tests, allow]
    return [*code, deny]


def _argument(argument: int, mask: int) -> list[bytes]:
    load = _op(_LOAD, _ARGUMENTS + 8 * argument)
    return [load] if mask == _WHOLE else [load, _op(_AND, mask)]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _one_of(argument: int, values: Sequence[int], mask: int = _WHOLE) -> Alternatives:
    return tuple(((argument, mask, value),) for value in values)
