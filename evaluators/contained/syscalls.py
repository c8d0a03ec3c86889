"""Numbers of the system calls that the sandbox names, for x86_64 and aarch64.

A call without a number does not exist on that machine; libraries use another call of the same list instead.
"""

from __future__ import annotations

import os
from functools import cache

Numbers = dict[str, tuple["int | None", "int | None"]]
"""Name of a call: its number on x86_64 and on aarch64 (uapi headers asm/unistd_64.h and asm-generic/unistd.h)."""

DESCRIPTORS: Numbers = {
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "preadv2": (327, 286),
    "pwritev2": (328, 287),
    "close": (3, 57),
    "close_range": (436, 436),
    "lseek": (8, 62),
    "sendfile": (40, 71),
    "copy_file_range": (326, 285),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "fadvise64": (221, 223),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create": (213, None),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441),
    "eventfd": (284, None),
    "eventfd2": (290, 19),
    "timerfd_create": (283, 85),
    "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87),
    "signalfd": (282, None),
    "signalfd4": (289, 74),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "socketpair": (53, 199),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "shutdown": (48, 210),
    "getsockopt": (55, 209),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
}
"""Reading, writing and polling open files."""

PATHS: Numbers = {
    "open": (2, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "umask": (95, 166),
}
"""Opening and inspecting files."""

ATTRIBUTES: Numbers = {
    "getxattr": (191, 8),
    "lgetxattr": (192, 9),
    "fgetxattr": (193, 10),
    "listxattr": (194, 11),
    "llistxattr": (195, 12),
    "flistxattr": (196, 13),
}
"""Reading the extended attributes of files."""

CHANGES: Numbers = {
    "creat": (85, None),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "link": (86, None),
    "linkat": (265, 37),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "truncate": (76, 45),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "utime": (132, None),
    "utimes": (235, None),
    "utimensat": (280, 88),
    "futimesat": (261, None),
}
"""Changing files and folders."""

MEMORY: Numbers = {
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "msync": (26, 227),
    "mincore": (27, 232),
    "mlock": (149, 228),
    "mlock2": (325, 284),
    "munlock": (150, 229),
    "membarrier": (324, 283),
    "get_mempolicy": (239, 236),
}
"""Memory."""

TASKS: Numbers = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "wait4": (61, 260),
    "waitid": (247, 95),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "pidfd_open": (434, 434),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "futex": (202, 98),
    "arch_prctl": (158, None),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "getpriority": (140, 141),
    "getcpu": (309, 168),
}
"""Threads and processes."""

OWN: Numbers = {
    "gettid": (186, 178),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getresuid": (118, 148),
    "getresgid": (120, 150),
    "getgroups": (115, 158),
    "getpgid": (121, 155),
    "getpgrp": (111, None),
    "getsid": (124, 156),
    "getrlimit": (97, 163),
    "setrlimit": (160, 164),
    "prlimit64": (302, 261),
    "getrusage": (98, 165),
    "times": (100, 153),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "capget": (125, 90),
    "prctl": (157, 167),
    "getrandom": (318, 278),
}
"""Queries of a process about itself."""

TIME: Numbers = {
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "alarm": (37, None),
    "pause": (34, None),
    "setitimer": (38, 103),
    "getitimer": (36, 102),
    "timer_create": (222, 107),
    "timer_settime": (223, 110),
    "timer_gettime": (224, 108),
    "timer_delete": (226, 111),
    "timer_getoverrun": (225, 109),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigsuspend": (130, 133),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
}
"""Time and signals."""

CONTAINMENT: Numbers = {
    "capset": (126, 91),
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}
"""Calls that only the sandbox itself makes."""

NUMBERS: Numbers = DESCRIPTORS | PATHS | ATTRIBUTES | CHANGES | MEMORY | TASKS | OWN | TIME | CONTAINMENT
"""Every call by name."""

MACHINES = ("x86_64", "aarch64")


@cache
def number(name: str, machine: str | None = None) -> int:
    """Return the number of a system call on a machine (default: this one); raises ``OSError`` if there is none."""
    found = table(machine).get(name)
    if found is None:
        raise OSError(f"system call {name!r} does not exist on {machine or os.uname().machine}")
    return found


@cache
def table(machine: str | None = None) -> dict[str, int]:
    """Return the numbers of every known call that exists on a machine; raises ``OSError`` if the machine is unknown."""
    machine = machine or os.uname().machine
    if machine not in MACHINES:
        raise OSError(f"the system calls of {machine} are unknown: the sandbox runs on {' and '.join(MACHINES)}")
    column = MACHINES.index(machine)
    return {name: found for name, numbers in NUMBERS.items() if (found := numbers[column]) is not None}
