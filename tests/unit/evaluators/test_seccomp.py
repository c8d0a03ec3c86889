"""The seccomp filter, run by an interpreter of our own for both machines: what is allowed, and what is not."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from evaluators.contained.seccomp import ALWAYS, ASK, SyscallPolicy, allowed, assemble, template
from evaluators.contained.syscalls import ATTRIBUTES, MACHINES, NUMBERS, number, table

ALLOW, ASKED, KILL, EPERM, ENOSYS, ENOTSUP = "allow", "ask", "kill", "EPERM", "ENOSYS", "ENOTSUP"
ANSWERS = {
    0x7FFF0000: ALLOW,
    0x7FC00000: ASKED,
    0x80000000: KILL,
    0x00050001: EPERM,
    0x00050026: ENOSYS,
    0x0005005F: ENOTSUP,
}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PID = 4242
OTHERS = ["ptrace", "mount", "unshare", "bpf", "keyctl", "socket", "connect", "memfd_create", "io_uring_setup"]


def run(
    program: bytes, number: int, arguments: tuple[int, ...] = (), architecture: int = ARCHITECTURES["x86_64"]
) -> str:
    """Run a classic BPF program on one system call, as the kernel does."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("<iIQ6Q", number - (1 << 32) if number >> 31 else number, architecture, 0, *padded)
    accumulator, at = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("<HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x06:
                return ANSWERS[value]
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


@pytest.fixture
def ask(machine):
    """Ask a filter about a call by name."""

    def ask(name, *arguments, syscall_policy=SyscallPolicy.THREADS, changes=True, open_flags=False):
        program = assemble(allowed(syscall_policy, pid=PID, changes=changes, open_flags=open_flags), machine)
        return run(program, number(name, machine), arguments, ARCHITECTURES[machine])

    return ask


@pytest.mark.parametrize("syscall_policy", SyscallPolicy)
@pytest.mark.parametrize("changes", [True, False])
def test_every_call_has_the_answer_of_the_list(machine, syscall_policy, changes):
    calls = allowed(syscall_policy, pid=PID, changes=changes, open_flags=False)
    program = assemble(calls, machine)
    numbers = table(machine)
    for name, found in numbers.items():
        answer = run(program, found, (), ARCHITECTURES[machine])
        if calls.get(name) == ALWAYS:
            assert answer == ALLOW, name
        elif calls.get(name) == ASK:
            assert answer == ASKED, name
        elif name in ("clone3", "openat2"):
            assert answer == ENOSYS, name
        elif name in ATTRIBUTES:
            assert answer == ENOTSUP, name
        elif name not in calls:
            assert answer == EPERM, name
    known = set(numbers.values())
    for unknown in set(range(600)) - known:
        assert run(program, unknown, (), ARCHITECTURES[machine]) == EPERM


def test_foreign_calls_end_the_process(machine):
    program = template(SyscallPolicy.PROCESSES, changes=True, open_flags=False) if machine == "x86_64" else None
    program = program or assemble(allowed(SyscallPolicy.PROCESSES, pid=PID, changes=True, open_flags=False), machine)
    read = number("read", machine)
    for architecture in (0x40000003, 0x40000028, ARCHITECTURES[MACHINES[machine == "x86_64"]]):  # i386, arm, the other
        assert run(program, read, (), architecture) == KILL
    assert run(program, 0x40000000 | read, (), ARCHITECTURES[machine]) == KILL  # x32
    assert run(program, 0xFFFFFFFF, (), ARCHITECTURES[machine]) == KILL


# A call, arguments that are allowed, and arguments that are not.
CONDITIONS = [
    ("clone", [(0x10000,), (0x3D0F00,)], [(0,), (17,), (0x10000000,), (0x8000,), (0x20011,), (0x10010000,)]),
    ("kill", [(PID, 9), (PID, 0)], [(1, 9), (0, 9), ((1 << 32) - 1, 9), (PID + 1, 0)]),
    ("tgkill", [(PID, PID, 6), (PID, 77, 6)], [(1, 1, 9), (0, PID, 9)]),
    ("prlimit64", [(0, 7, 0, 0)], [(1, 7, 0, 0), (PID, 7, 0, 0)]),
    ("mmap", [(0, 9, 3, 0x22), (0, 9, 3, 0x4022), (0, 9, 1, 1)], [(0, 9, 3, 0x21), (0, 9, 3, 0x23)]),
    ("socketpair", [(1, 1, 0), (1, 0x80801, 0)], [(1, 2, 0), (1, 5, 0), (2, 1, 0), (16, 1, 0), (1, 0x80802, 0)]),
    (
        "fcntl",
        [(3, 3), (3, 4), (3, 1030)],
        [(3, each) for each in (5, 6, 7, 8, 10, 15, 36, 37, 38, 1024, 1026, 1031, 1033)],
    ),
    ("ioctl", [(1, 0x5401), (0, 0x541B)], [(0, 0x5412), (0, 0x8901), (0, 0x8902), (0, 0x5452), (0, 0x4B4D)]),
    (
        "prctl",
        [(15,), (16,), (0x53564D41,)],
        [(1,), (4,), (8,), (22,), (24,), (35,), (36,), (38,), (47,), (0x59616D61,)],
    ),
]


@pytest.mark.parametrize(("name", "good", "bad"), CONDITIONS, ids=[each[0] for each in CONDITIONS])
def test_arguments_are_compared(ask, name, good, bad):
    assert {ask(name, *arguments) for arguments in good} == {ALLOW}
    assert {ask(name, *arguments) for arguments in bad} == {EPERM}


@pytest.mark.parametrize("syscall_policy", SyscallPolicy)
def test_no_policy_evades_what_the_supervisor_measures(ask, syscall_policy):
    assert ask("prlimit64", 0, 7, 0, 0, syscall_policy=syscall_policy) == ALLOW
    assert ask("prlimit64", 1, 7, 0, 0, syscall_policy=syscall_policy) == EPERM  # the supervisor
    assert ask("mmap", 0, 9, 3, 0x21, syscall_policy=syscall_policy) == EPERM


def test_the_upper_half_of_a_number_does_not_help(ask):
    """The kernel takes these arguments as 32-bit numbers: what is above must neither pass nor hide anything."""
    assert ask("kill", 1 << 32 | PID, 9) == ALLOW  # the kernel sees our own id, too
    assert ask("kill", PID << 32 | 1, 9) == EPERM
    assert ask("clone", 0x10000 << 32) == EPERM


@pytest.mark.parametrize("flags", [1, 2, 0o100, 0o1000, 0o20200000, 0o101])
def test_an_old_landlock_is_helped_by_the_flags_of_open(ask, machine, flags):
    calls = [("openat", (0, 0, flags), (0, 0, 0o2000000))]
    if machine == "x86_64":
        calls.append(("open", (0, flags), (0, 0o2000000)))
    for name, bad, good in calls:
        assert ask(name, *bad, changes=False, open_flags=True) == EPERM
        assert ask(name, *good, changes=False, open_flags=True) == ALLOW
        assert ask(name, *bad, changes=False) == ALLOW


def test_threads_start_nothing(ask):
    for name in ("execve", "execveat", "setsid", "setpgid", "tkill", "pidfd_open"):
        assert ask(name) == EPERM


def test_a_program_may_become_another_and_start_nothing(ask):
    assert ask("execve", syscall_policy=SyscallPolicy.PROGRAM) == ASKED
    assert ask("execveat", syscall_policy=SyscallPolicy.PROGRAM) == EPERM
    assert ask("clone", 17, syscall_policy=SyscallPolicy.PROGRAM) == EPERM


def test_what_starts_programs_may_and_can_still_confine_them(ask):
    for name in ("execve", "kill", "setsid", "seccomp", "prctl"):
        assert ask(name, syscall_policy=SyscallPolicy.PROCESSES) == ALLOW


def test_what_starts_programs_makes_no_namespaces(ask):
    for flags in (17, 0x4111, 0x3D0F00, 0x1200011):  # fork, vfork, a thread, glibc's fork
        assert ask("clone", flags, syscall_policy=SyscallPolicy.PROCESSES) == ALLOW
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask("clone", namespace | 17, syscall_policy=SyscallPolicy.PROCESSES) == EPERM
    assert ask("clone3", syscall_policy=SyscallPolicy.PROCESSES) == ENOSYS


def test_without_changes_no_file_can_be_changed(ask, machine):
    for name in ("mkdirat", "unlinkat", "renameat2", "linkat", "symlinkat", "ftruncate", "fchmod", "utimensat"):
        assert ask(name) == ALLOW
        assert ask(name, changes=False) == EPERM


def test_a_template_holds_its_process_id_in_its_conditions_only():
    marked = template(SyscallPolicy.THREADS, changes=True, open_flags=False)
    plain = assemble(allowed(SyscallPolicy.THREADS, pid=PID, changes=True, open_flags=False))
    mark = struct.pack("<I", 0x7EC1A7ED)
    assert marked.count(mark) == 2  # kill and tgkill
    assert marked.replace(mark, struct.pack("<I", PID)) == plain


def test_a_machine_that_is_not_known_is_named():
    with pytest.raises(OSError, match="riscv64"):
        table("riscv64")
    with pytest.raises(OSError, match="'fork' does not exist on aarch64"):
        number("fork", "aarch64")


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
_WANTED = ["RENAMEAT", "NEW_STAT", "SET_GET_RLIMIT", "TIME32_SYSCALLS", "SYS_CLONE3", "MEMFD_SECRET"]


def test_the_numbers_are_the_kernels(machine):
    header = HEADERS[machine]
    if not header.exists() or shutil.which("gcc") is None:
        pytest.skip(f"system calls of {machine} are not compared: no {header} or no gcc here")
    flags = [f"-D__ARCH_WANT_{name}" for name in _WANTED] if machine == "aarch64" else []
    command = ["gcc", "-dM", "-E", "-D__BITS_PER_LONG=64", *flags, str(header)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    defined = dict(re.findall(r"#define (__NR\w+) (\S+)", said))

    def value(name):
        while name in defined:
            name = defined[name]
        return int(name) if name.isdigit() else None

    column = MACHINES.index(machine)
    for name, numbers in NUMBERS.items():
        if machine == "aarch64" and numbers[column] is None:
            continue  # the generic header still names calls that aarch64 never had
        assert value(f"__NR_{name}") == numbers[column], name


def test_what_no_sandbox_needs_is_not_even_named():
    assert not {*OTHERS} & NUMBERS.keys()
