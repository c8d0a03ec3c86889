"""Hostile builds: a compiler that does whatever the source says stays inside, and leaves only files of its program."""

import shutil
import sys

import pytest

from speciate.domain.candidate import Failure, FailureKind
from tests.sandbox.arenas import NOT_TRIED, PATIENT, Arena, make_problem

BUILT = {
    "name": "Hostile",
    "file": "main.py",
    "build": [sys.executable, "main.py"],  # executes the candidate's text: the worst that a compiler could do
    "run": [sys.executable, "program"],
    "build_s": 20,
    "build_memory_bytes": 128 << 20,
    "build_bytes": 1 << 20,
}
CASES = [{"input": ["21"], "expected": "42"}]
HEAD = "import os, signal, socket, subprocess, sys, time\nopen('program', 'w').write('print(2 * int(input()))')\n"


def fields(**language):
    return {"language": BUILT | language, "cases": CASES, "limits": PATIENT}


@pytest.fixture(params=["A as root", "A as an ordinary user"])
def walls(request, enter) -> Arena:
    arena = enter(request.param)
    arena.evaluate(make_problem(**fields()), [HEAD])  # starts the zygote, which stays
    arena.settle()
    return arena


def failure_of(walls: Arena, body: str, **language) -> Failure:
    failure = walls.attack(HEAD + body, **fields(**language)).failure
    assert failure is not None
    return failure


def test_an_honest_build_works(walls):
    assert walls.attack(HEAD, **fields()).rewards == (1.0,)


def test_a_compiler_finds_its_own_path(walls):
    """Rust before 1.67 stops otherwise; the program that it built finds nothing."""
    built = "open('program', 'w').write('import os\\nprint(42 - 42 * os.path.exists(\"/proc/self/exe\"))')\n"
    own = f"assert os.readlink('/proc/self/exe') == {sys.executable!r}\n"
    assert walls.attack(HEAD + own + built, **fields()).rewards == (1.0,)


BOMBS = {
    "time": ("while True: pass", {"build_s": 0.5}, FailureKind.TIMEOUT, "build_wall_limit"),
    "memory": (
        "for _ in range(4):\n    if os.fork() == 0: kept = bytearray(b'x' * (60 << 20)); time.sleep(600)\ntime.sleep(15)",
        {},
        FailureKind.OUT_OF_MEMORY,
        "build_memory_limit",
    ),
    "files": (
        "for i in range(4): open(f'part{i}', 'wb').write(bytes(1 << 20))",
        {},
        FailureKind.INVALID_OUTPUT,
        "build_too_large",
    ),
    "many files": (
        "for i in range(2000): open(f'part{i}', 'w').close()",
        {},
        FailureKind.INVALID_OUTPUT,
        "build_too_large",
    ),
    "disk": ("open('.big', 'wb').write(bytes(64 << 20))", {}, FailureKind.CRASHED, "build_failed"),
    "messages": ("for _ in range(1 << 14): print('x' * 256)\nsys.exit(1)", {}, FailureKind.CRASHED, "build_failed"),
    "processes": ("for _ in range(500): os.fork() or time.sleep(600)", {}, FailureKind.CRASHED, "build_failed"),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_a_failure_of_its_candidate(walls, bomb):
    body, language, kind, reason = bomb
    failure = failure_of(walls, body, **language)
    assert (failure.kind, failure.reason) == (kind, reason), failure
    assert len(failure.detail) <= 4000


OUTLIVING = {
    "a daemon": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "one that ignores signals and writes": (
        "os.fork() or ([signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)],"
        " [open('/tmp/program', 'w').write('print(0)') or time.sleep(0.01) for _ in range(60_000) if time.sleep(1) or 1])"
    ),
}


@pytest.mark.parametrize("body", OUTLIVING.values(), ids=OUTLIVING)
def test_what_a_build_starts_ends_with_it(walls, body):
    assert walls.attack(HEAD + body, **fields()).rewards == (1.0,)


LEAVING = {
    "a link to a file": "os.remove('program'); os.symlink('/usr/lib/os-release', 'program')",
    "a folder that is a link": "os.remove('program'); os.symlink('/usr/lib', 'program')",
}


@pytest.mark.parametrize("body", LEAVING.values(), ids=LEAVING)
def test_links_are_no_part_of_a_program(walls, body):
    failure = failure_of(walls, body)
    assert failure.reason == "program_failed"
    assert "No such file" in failure.detail


REACHING = {
    "read /etc/passwd": "open('/etc/passwd').read()",
    "connect": "socket.create_connection(('127.0.0.1', 80), 1)",
    "write to the system": "open('/usr/lib/evil.so', 'w')",
    "a new user namespace": "subprocess.run(['unshare', '-U', 'true'], check=True)",
}


@pytest.mark.parametrize("body", REACHING.values(), ids=REACHING)
def test_a_build_reaches_nothing(walls, body):
    failure = failure_of(walls, body)
    assert failure.reason == "build_failed"
    assert "Error" in failure.detail


def test_variables_and_libraries_of_a_build_reach_no_program(walls):
    plant = (
        "os.environ['LD_PRELOAD'] = '/tmp/evil.so'\nopen('evil.so', 'w').write('no library')\n"
        "open('sitecustomize.py', 'w').write('raise SystemExit(9)')\n"
        "open('program', 'w').write('import os\\nprint(42 if \"LD_PRELOAD\" not in os.environ else 0)')"
    )
    results = walls.evaluate(make_problem(**fields()), [HEAD + plant, HEAD])
    assert [each.rewards for each in results] == [(1.0,), (1.0,)], results


@pytest.mark.skipif(shutil.which("g++") is None, reason=f"{NOT_TRIED}attacks by a source in C++, without g++")
@pytest.mark.parametrize(
    "line",
    ['#include "/etc/passwd"', '#include "/proc/self/environ"', 'asm(".incbin \\"/etc/passwd\\"");'],
    ids=["include", "environment", "incbin"],
)
def test_a_source_in_cpp_includes_nothing_of_the_host(walls, line):
    evaluation = walls.attack(f"{line}\nint main() {{}}\n", language="cpp", cases=CASES, limits=PATIENT)
    assert evaluation.failure is not None
    assert evaluation.failure.reason == "build_failed"
    assert "No such file" in evaluation.failure.detail or "not found" in evaluation.failure.detail


EXECUTING = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
extern char **environ;
static char *again[] = {"program", "again", NULL};
static char *python[] = {"python3", "-c", "print('breached')", NULL};
static char *loader[] = {"ld.so", PYTHON, "-c", "print('breached')", NULL};
static void copy(int to) {
    static char part[1 << 16];
    int from = open("program", O_RDONLY), size;
    while ((size = read(from, part, sizeof part)) > 0) if (write(to, part, size) != size) abort();
}
static void *execute(void *_) {
    execve(PYTHON, python, environ);
    execl("/bin/sh", "sh", "-c", "echo breached", NULL);
    execl("/usr/bin/gcc", "gcc", "--version", NULL);
    execl("/usr/bin/node", "node", "--version", NULL);
    execve("./program", again, environ);
    execve("/proc/self/exe", again, environ);
    execve("/lib64/ld-linux-x86-64.so.2", loader, environ);
    execve("/lib/ld-linux-aarch64.so.1", loader, environ);
    int script = open("script", O_WRONLY | O_CREAT, 0700);
    if (write(script, "#!/bin/sh\necho breached\n", 24) != 24) abort();
    close(script);
    execl("./script", "script", NULL);
    int own = open("program", O_RDONLY);
    syscall(SYS_execveat, own, "", again, environ, AT_EMPTY_PATH);
    int copied = open("copied", O_WRONLY | O_CREAT, 0700);
    copy(copied);
    close(copied);
    execve("./copied", again, environ);
    int memory = memfd_create("program", 0);
    if (memory >= 0) { copy(memory); fexecve(memory, again, environ); }
    return NULL;
}
int main(int count, char **words) {
    int x;
    pthread_t thread;
    if (count > 1) { puts("breached"); return 0; }
    if (scanf("%d", &x) != 1) return 1;
    execute(NULL);
    if (pthread_create(&thread, NULL, execute, NULL) || pthread_join(thread, NULL)) return 1;
    printf("%d\n", 2 * x);
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason=f"{NOT_TRIED}programs in C that execute others, without gcc")
def test_a_compiled_program_executes_nothing_else(walls):
    """Not another program, not itself again, not by the loader, a script, a descriptor or a thread."""
    program = EXECUTING.replace("PYTHON", f'"{sys.executable}"')
    results = walls.evaluate(make_problem(**fields() | {"language": "c"}), [program])
    assert results[0].rewards == (1.0,), results
