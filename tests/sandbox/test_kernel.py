"""System calls that no candidate needs never reach the kernel, by no number and no architecture."""

import os
from pathlib import Path

import pytest

from evaluators.contained.seccomp import SyscallPolicy, allowed
from evaluators.contained.syscalls import ATTRIBUTES, table
from speciate.domain.candidate import FailureKind
from tests.sandbox.arenas import NOT_TRIED, Arena, left_behind
from tests.sandbox.programs import answer, in_solve, number

# Senseless arguments: without walls the kernel complains about these, or does nothing.
CALLS = {
    "mount": (165, 40, "0, 0, 0, 0, 0"),
    "umount2": (166, 39, "0, 0"),
    "move_mount": (429, 429, "-1, 0, -1, 0, 0"),
    "open_tree": (428, 428, "-1, 0, 0"),
    "fsopen": (430, 430, "0, 0"),
    "fsmount": (432, 432, "-1, 0, 0"),
    "pivot_root": (155, 41, "0, 0"),
    "chroot": (161, 51, "0"),
    "unshare": (272, 97, "0x80000001"),
    "setns": (308, 268, "-1, 0"),
    "ptrace": (101, 117, "0x4206, -5, 0, 0"),
    "process_vm_readv": (310, 270, "0, 0, 0, 0, 0, 0"),
    "process_vm_writev": (311, 271, "0, 0, 0, 0, 0, 0"),
    "process_madvise": (440, 440, "-1, 0, 0, 0, 0"),
    "kcmp": (312, 272, "0, 0, 0, 0, 0"),
    "pidfd_getfd": (438, 438, "-1, 0, 0"),
    "pidfd_send_signal": (424, 424, "-1, 0, 0, 0"),
    "userfaultfd": (323, 282, "0x1000"),
    "bpf": (321, 280, "-1, 0, 0"),
    "perf_event_open": (298, 241, "0, 0, -1, -1, 0"),
    "io_uring_setup": (425, 425, "0, 0"),
    "io_uring_enter": (426, 426, "-1, 0, 0, 0, 0, 0"),
    "io_uring_register": (427, 427, "-1, 0, 0, 0"),
    "io_setup": (206, 0, "0, 0"),
    "memfd_create": (319, 279, "0, 0"),
    "memfd_secret": (447, 447, "-1"),
    "execveat": (322, 281, "-1, 0, 0, 0, 0"),
    "keyctl": (250, 219, "0, -3, 0"),
    "add_key": (248, 217, "0, 0, 0, 0, -3"),
    "request_key": (249, 218, "0, 0, 0, -3"),
    "shmget": (29, 194, "0, 4096, 0"),
    "msgget": (68, 186, "99, 0"),
    "semget": (64, 190, "99, 0, 0"),
    "mq_open": (240, 180, "0, 0, 0, 0"),
    "inotify_init1": (294, 26, "-1"),
    "fanotify_init": (300, 262, "-1, 0"),
    "name_to_handle_at": (303, 264, "-1, 0, 0, 0, 0"),
    "open_by_handle_at": (304, 265, "-1, 0, 0"),
    "quotactl": (179, 60, "0, 0, 0, 0"),
    "init_module": (175, 105, "0, 0, 0"),
    "kexec_load": (246, 104, "0, 1000, 0, 0"),
    "syslog": (103, 116, "-1, 0, 0"),
    "clock_settime": (227, 112, "0, 0"),
    "clock_adjtime": (305, 266, "-1, 0"),
    "settimeofday": (164, 170, "-1, 0"),
    "sethostname": (170, 161, "-1, -1"),
    "personality": (135, 92, "-1"),
    "seccomp": (317, 277, "-1, 0, 0"),
    "landlock_create_ruleset": (444, 444, "0, 0, 1"),
    "capset": (126, 91, "0, 0"),
    "setuid": (105, 146, "-1"),
    "setgroups": (116, 159, "-1, 0"),
    "setfsuid": (122, 151, "-1"),
    "mbind": (237, 235, "0, 0, -1, 0, 0, -1"),
    "migrate_pages": (256, 238, "0, 0, 0, 0"),
    "vmsplice": (278, 75, "-1, 0, 0, 0"),
    "splice": (275, 76, "-1, 0, -1, 0, 1, 0"),
    "tee": (276, 77, "-1, -1, 1, 0"),
    "ioprio_set": (251, 30, "-1, 0, 0"),
    "mlockall": (151, 230, "0"),
    "remap_file_pages": (216, 234, "1, 0, 0, 0, 0"),
    "prctl, to be seen by debuggers": (157, 167, "4, 9, 0, 0, 0"),
    "prctl, to be traced": (157, 167, "0x59616d61, 1, 0, 0, 0"),
    "prctl, for another filter": (157, 167, "22, 9, 0, 0, 0"),
    "prctl, to keep capabilities": (157, 167, "8, 9, 0, 0, 0"),
    "prctl, for another memory map": (157, 167, "35, -1, 0, 0, 0"),
    "fcntl, for signals": (72, 25, "0, 10, -1"),
    "fcntl, for notice of changes": (72, 25, "0, 1026, 0"),
    "fcntl, for a lease": (72, 25, "0, 1024, 9"),
    "fcntl, for larger pipes": (72, 25, "1, 1031, 4096"),
    "ioctl, for a terminal's input": (16, 29, "0, 0x5412, 0"),
}


_NOT_IN_EVERY_KERNEL = {
    "memfd_secret",
    "prctl, to be traced",
    "prctl, for another memory map",
    "userfaultfd",
    "bpf",
    "kexec_load",
    "init_module",
}


def through(arena: Arena) -> set[str]:
    """Which calls reach the kernel in an arena; one candidate makes them all."""
    program = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def reaches(numbers):
    result = libc.syscall(*map(ctypes.c_long, numbers))
    return result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.EACCES, errno.ENOSYS)
def solve(calls):
    print(";".join(name for name, numbers in calls.items() if reaches(numbers)))
    return 0
"""
    calls = {
        name: [number(x86_64, aarch64), *(int(each, 0) for each in arguments.split(", "))]
        for name, (x86_64, aarch64, arguments) in CALLS.items()
    }
    evaluation = arena.attack(program, cases=[{"input": [calls], "expected": 0}])
    assert evaluation.rewards == (1.0,), evaluation
    return set(evaluation.artifacts["stdout"].strip().split(";")) - {""}


def test_calls_do_not_reach_the_kernel(arena):
    assert through(arena) == set()


def test_without_walls_they_do(unsafe, needs_root):
    assert CALLS.keys() - through(unsafe) <= _NOT_IN_EVERY_KERNEL


def test_no_call_beyond_the_list_reaches_the_kernel(arena):
    calls = allowed(SyscallPolicy.THREADS, pid=1, changes=arena.tier == "A", open_flags=False)
    # The kernel's own trampolines for probes pass every filter, and end any other caller.
    numbers = [found for name, found in table().items() if name in calls] + [335, 336]
    program = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def solve(lists):
    numbers, attributes = lists
    through = []
    for number in set(range(600)) - set(numbers):
        result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        expected = (errno.ENOTSUP,) if number in attributes else (errno.EPERM, errno.ENOSYS)
        if result != -1 or ctypes.get_errno() not in expected:
            through.append(number)
    return through
"""
    assert answer(arena, program, [numbers, [table()[name] for name in ATTRIBUTES]]) == "[]"


_ON_X86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason=f"{NOT_TRIED}foreign calls of x86_64")
_MACHINE_CODE = """
import ctypes, mmap
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
page = mmap.mmap(-1, 4096, private, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write({code!r})
run = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
def solve(x):
    run()
    return 2 * x
"""
FOREIGN = {
    "x32": in_solve("ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 39))", "return 2 * x", top="import ctypes"),
    "x32, a call that is allowed": in_solve(
        "ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 1), 1, b'x', 1)", "return 2 * x", top="import ctypes"
    ),
    # mov eax, 20 (getpid); int 0x80; ret
    "32-bit": _MACHINE_CODE.format(code=b"\xb8\x14\0\0\0\xcd\x80\xc3"),
    # mov eax, 11 (there execve, here munmap); xor ebx, ebx; int 0x80; ret
    "32-bit, a number that means something else": _MACHINE_CODE.format(code=b"\xb8\x0b\0\0\0\x31\xdb\xcd\x80\xc3"),
}


@_ON_X86_64
@pytest.mark.parametrize("program", FOREIGN.values(), ids=FOREIGN)
def test_calls_of_another_architecture_end_the_process(arena, program):
    failure = arena.attack(program).failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.CRASHED, "sigsys")


@_ON_X86_64
@pytest.mark.parametrize("program", FOREIGN.values(), ids=FOREIGN)
def test_without_walls_they_do_not(unsafe, program):
    assert unsafe.attack(program).rewards == (1.0,)


RAISING = {
    "soft and hard": "resource.setrlimit(which, (had[1] + 1, had[1] + 1))",
    "hard": "resource.setrlimit(which, (had[0], had[1] + 1))",
    "none": "resource.setrlimit(which, (-1, -1))",
    "by another call": "resource.prlimit(0, which, (had[1] + 1, had[1] + 1))",
    "of itself by its number": "resource.prlimit(os.getpid(), which, (-1, -1))",
}


@pytest.mark.parametrize("how", RAISING.values(), ids=RAISING)
def test_limits_cannot_be_raised(arena, how):
    program = f"""
import os, resource
def solve(limit):
    which = getattr(resource, "RLIMIT_" + limit)
    had = resource.getrlimit(which)
    try: {how}
    except (OSError, ValueError): pass
    now = resource.getrlimit(which)
    return -1 not in now and now[0] <= had[1] and now[1] <= had[1]
"""
    cases = [{"input": [limit], "expected": True} for limit in ("AS", "CPU", "NOFILE", "FSIZE", "CORE")]
    assert arena.attack(program, cases=cases).rewards == (1.0,)


CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")


def test_a_crash_leaves_no_image(arena):
    before = CORE_PATTERN.read_text()
    crash = in_solve(
        "try: resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))",
        "except (OSError, ValueError): pass",
        "try: open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/true')",
        "except OSError: pass",
        "ctypes.string_at(0)",
        top="import ctypes, resource",
    )
    assert arena.attack(crash).failure is not None
    assert left_behind() == []
    assert CORE_PATTERN.read_text() == before


def test_no_capability_is_left(arena):
    program = """
import ctypes
def solve():
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capget(header, data) == 0
    return [*data]
"""
    assert answer(arena, program) == "[0, 0, 0, 0, 0, 0]"
