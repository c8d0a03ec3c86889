"""Files beyond the walls can be neither read nor changed, by no trick, and what a candidate writes is bounded."""

import sys

import pytest

from tests.sandbox.arenas import NOT_TRIED, make_problem
from tests.sandbox.programs import BREACHED, HELD, answer, attempt, attempts, for_each, in_solve

READING = {
    "/etc/passwd": "open('/etc/passwd').read(1)",
    "a file of a stranger": "open(there['outside'] + '/text').read(1)",
    "a folder of a stranger": "os.listdir(there['outside'])",
    "by a relative path": "open('../' * 20 + there['outside'] + '/text').read(1)",
    "the worker's environment": "open(f\"/proc/{there['worker']}/environ\", 'rb').read(1)",
    "the worker's command line": "open(f\"/proc/{there['worker']}/cmdline\", 'rb').read(1)",
    "the worker's memory": "open(f\"/proc/{there['worker']}/mem\", 'rb')",
    "the worker's map": "open(f\"/proc/{there['worker']}/maps\", 'rb').read(1)",
    "the worker's descriptors": "os.listdir(f\"/proc/{there['worker']}/fd\")",
    "through the worker's root": "os.listdir(f\"/proc/{there['worker']}/root/etc\")",
    "through the worker's descriptors": "open(f\"/proc/{there['worker']}/fd/2\")",
    "the zygote's memory": "open(f\"/proc/{there['zygote']}/mem\", 'rb')",
    "the supervisor's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
    "the supervisor's environment": "open(f'/proc/{os.getppid()}/environ', 'rb').read(1)",
    "own environment before": "open('/proc/self/environ', 'rb').read(1)",
    "the machine's command line": "open('/proc/cmdline').read(1)",
    "the machine's mounts": "open('/proc/mounts').read(1)",
    "the machine's settings": "open('/sys/kernel/uevent_seqnum').read(1)",
    "the machine's logs": "os.listdir('/var/log')",
}


def test_nothing_beyond_the_walls_can_be_read(arena, outside):
    assert attempts(arena, READING, outside.seen_by(arena)) == dict.fromkeys(READING, HELD)


def test_without_walls_it_can_be_read(unsafe, needs_root, unsafe_outside):
    assert attempts(unsafe, READING, unsafe_outside.seen_by(unsafe)) == dict.fromkeys(READING, BREACHED)


# ``here`` is a folder that everybody may write to, with a file ``text``.
CHANGING = {
    "write": "open(here + '/text', 'w').write('x')",
    "append": "open(here + '/text', 'a').write('x')",
    "open to read and write": "open(here + '/text', 'r+')",
    "open to read, and empty it": "os.open(here + '/text', os.O_RDONLY | os.O_TRUNC)",
    "empty it by name": "os.truncate(here + '/text', 0)",
    "create": "open(here + '/new', 'x')",
    "create without a name": "os.open(here, os.O_TMPFILE | os.O_RDWR)",
    "create by a path that is not clean": "open(here + '/../' + here.rpartition('/')[2] + '/new', 'x')",
    "make a folder": "os.mkdir(here + '/new')\nos.rmdir(here + '/new')",
    "make a pipe": "os.mkfifo(here + '/new')",
    "make a socket": "os.mknod(here + '/new', 0o140666)",
    "remove": "os.unlink(here + '/text')",
    "rename": "os.rename(here + '/text', here + '/new')",
    "exchange": "os.symlink('text', here + '/new')\nos.replace(here + '/new', here + '/text')",
    "link": "os.link(here + '/text', here + '/new')",
    "symbolic link": "os.symlink('text', here + '/new')",
    "change the mode": "os.chmod(here + '/text', 0o600)",
    "change the mode of what is open": "os.fchmod(os.open(here + '/text', os.O_RDONLY), 0o600)",
    "change the mode by descriptor and name": "os.chmod('text', 0o600, dir_fd=os.open(here, os.O_RDONLY))",
    "change the owner": "os.chown(here + '/text', -1, -1)",
    "change the owner of what is open": "os.fchown(os.open(here + '/text', os.O_RDONLY), -1, -1)",
    "change the time": "os.utime(here + '/text')",
    "change the time of what is open": "os.utime(os.open(here + '/text', os.O_RDONLY))",
    "set an attribute": "os.setxattr(here + '/text', 'user.x', b'x')",
    "set an attribute of what is open": "os.setxattr(os.open(here + '/text', os.O_RDONLY), 'user.x', b'x')",
    "open again for writing": "os.open(f\"/proc/self/fd/{os.open(here + '/text', os.O_RDONLY)}\", os.O_WRONLY)",
    "be told of changes": "if libc.inotify_init1(0) < 0: raise OSError(ctypes.get_errno(), 'refused')",
}


CHANGING_EITHER = {
    name: for_each("here", "(there['outside'], there['shown'])", body) for name, body in CHANGING.items()
}


def test_nothing_beyond_the_walls_can_be_changed(arena, outside):
    assert attempts(arena, CHANGING_EITHER, outside.seen_by(arena)) == dict.fromkeys(CHANGING, HELD)


@pytest.mark.parametrize("body", CHANGING.values(), ids=CHANGING)
def test_without_walls_it_can_be_changed(unsafe, unsafe_outside, body):
    assert attempt(unsafe, f"here = there['shown']\n{body}", unsafe_outside.seen_by(unsafe)) == BREACHED


def test_some_of_it_is_where_they_may_read(everything_outside):
    if not everything_outside.shown.is_relative_to(sys.prefix):
        pytest.skip(f"{NOT_TRIED}changing files that candidates may read: {sys.prefix} belongs to another user")


LINKS = {
    "a symbolic link": "os.symlink(there['outside'] + '/text', 'link')\nopen('link').read(1)",
    "a symbolic link to a folder": "os.symlink(there['outside'], 'link')\nos.listdir('link')",
    "a chain of symbolic links": ("os.symlink(there['outside'], 'a')\nos.symlink('a', 'b')\nopen('b/text').read(1)"),
    "a link": "os.link(there['shown'] + '/text', 'link')",
    "a link to what is open": (
        "os.link(f\"/proc/self/fd/{os.open(there['shown'] + '/text', os.O_RDONLY)}\", 'link', follow_symlinks=True)"
    ),
    "the link of a process": "open('/proc/self/root' + there['outside'] + '/text').read(1)",
    "moving own folder away": "os.rename('.', there['outside'] + '/new')",
}


def test_no_link_leads_out(arena, outside):
    assert attempts(arena, LINKS, outside.seen_by(arena)) == dict.fromkeys(LINKS, HELD)


def test_bytes_in_folders_can_be_read_and_not_changed(arena):
    program = """
def solve():
    refused = 0
    for change in (lambda: open("data/deep/new", "w"), lambda: open("data/deep/b.bin", "wb")):
        try: change()
        except OSError: refused += 1
    return [list(open("data/deep/b.bin", "rb").read()), refused]
"""
    files = {"deep/b.bin": "data:;base64,AP8K"}
    problem = make_problem(data_files=files, cases=[{"input": [], "expected": [[0, 255, 10], 2]}])
    (evaluation,) = arena.evaluate(problem, [program])
    assert evaluation.rewards == (1.0,), evaluation


def test_meminfo_describes_the_limit_of_the_problem(arena):
    program = """
import os
def solve():
    lines = open("/proc/meminfo").read().splitlines()
    found = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}
    for change in (lambda: open("/proc/meminfo", "w"), lambda: os.chmod("/proc/meminfo", 0o600),
                   lambda: os.unlink("/proc/meminfo"), lambda: open("/supervisor/new", "w")):
        try: change()
        except OSError: pass
        else: return "changed"
    return [found["MemTotal"], found["MemAvailable"], found["SwapTotal"], sorted(os.listdir("/proc"))]
"""
    size = 777 << 20
    expected = [size >> 10, size >> 10, 0, ["cpuinfo", "meminfo", "self"]]
    evaluation = arena.attack(program, cases=[{"input": [], "expected": expected}], limits={"memory_bytes": size})
    assert (evaluation.rewards == (1.0,)) == (arena.tier == "A"), evaluation


def test_files_and_folders_can_be_copied_with_their_times_where_times_can_be_changed(arena):
    program = """
import os, shutil
def solve():
    shutil.copy2("data/deep/b.txt", "own.txt")
    shutil.copytree("data", "copy")
    same = os.stat("own.txt").st_mtime_ns == os.stat("data/deep/b.txt").st_mtime_ns
    return [open("own.txt").read(), open("copy/deep/b.txt").read(), same]
"""
    problem = make_problem(data_files={"deep/b.txt": "1"}, cases=[{"input": [], "expected": ["1", "1", True]}])
    (evaluation,) = arena.evaluate(problem, [program])
    assert (evaluation.rewards == (1.0,)) == (arena.tier == "A"), evaluation


def test_data_files_can_be_read_and_not_changed(arena):
    program = """
import os
def solve(how):
    try:
        if how == "read": return open("data/table.txt").read()
        if how == "write": open("data/table.txt", "w").write("x")
        if how == "empty": os.open("data/table.txt", os.O_RDONLY | os.O_TRUNC)
        if how == "create": open("data/new", "w")
        if how == "remove": os.unlink("data/table.txt")
        if how == "rename": os.rename("data", "other")
        if how == "link": os.link("data/table.txt", "link")
        if how == "mode": os.chmod("data/table.txt", 0o777)
        if how == "next": os.listdir("data/../../")
    except OSError:
        return "refused"
    return "done"
"""
    ways = ("write", "empty", "create", "remove", "rename", "link", "mode", "read")
    cases = [{"input": [way], "expected": "1 2 3" if way == "read" else "refused"} for way in ways]
    problem = make_problem(cases=cases, data_files={"table.txt": "1 2 3"})
    first, second = arena.evaluate(problem, [program, program])
    assert first.rewards == (1.0,), first
    assert second.rewards == (1.0,), second


FILLING = {
    "one large file": "f = open('f', 'wb', buffering=0)\nwhile True: size += f.write(bytes(1 << 20))",
    "many large files": (
        "for i in range(1000):\n    f = open(f'f{i}', 'wb', buffering=0)\n    size += f.write(bytes(8 << 20))"
    ),
    "a file with holes": "f = open('f', 'wb', buffering=0)\nos.ftruncate(f.fileno(), 1 << 40)\nsize = 1 << 40",
    "space set aside": "os.posix_fallocate(os.open('f', os.O_CREAT | os.O_RDWR), 0, 1 << 34)\nsize = 1 << 34",
    "many empty files": (
        "for i in range(100000):\n    os.close(os.open(f'f{i}', os.O_CREAT | os.O_RDWR))\n    size += 1 << 15"
    ),
    "many folders": "for i in range(100000):\n    os.mkdir(f'f{i}')\n    size += 1 << 15",
    "deep folders": "for i in range(100000):\n    os.mkdir('f')\n    os.chdir('f')\n    size += 1 << 15",
    "many links": "for i in range(100000):\n    os.symlink('x' * 4000, f'f{i}')\n    size += 1 << 15",
}


@pytest.mark.parametrize("body", FILLING.values(), ids=FILLING)
def test_the_disk_cannot_be_filled(arena, body):
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    program = f"import os\ndef solve():\n    size = 0\n    try:\n{lines}    except OSError: pass\n    return size\n"
    assert int(answer(arena, program)) <= 32 << 20


def test_a_full_folder_is_empty_for_the_next(arena):
    fill = "for i in range(30): open(f'f{i}', 'wb').write(bytes(1 << 20))\n"
    # Python's own folders may be beneath /tmp, too: they are no files.
    look = "import os\ndef solve():\n    return [f.name for f in os.scandir('/tmp') if f.is_file()]\n"
    filled = f"try:\n    {fill}except OSError: pass\n{look}"
    problem = make_problem(cases=[{"input": [], "expected": []}])
    _, following = arena.evaluate(problem, [filled, look])
    assert following.rewards == (1.0,) or arena.tier == "B", following


def test_writing_a_large_file_fails_and_does_not_kill(any_arena):
    program = in_solve("try: open('f', 'wb').write(bytes(32 << 20))", "except OSError: return 2 * x")
    assert any_arena.attack(program).rewards == (1.0,)
