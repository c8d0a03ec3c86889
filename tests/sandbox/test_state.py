"""Nothing of one candidate reaches the next, but what both are given: the seed."""

import pytest

from tests.sandbox.arenas import CONTAINING, MARK, make_problem

LEAVING = {
    "builtins": ("import builtins\nbuiltins.leak = 1", "import builtins\nfound = hasattr(builtins, 'leak')"),
    "environment": ("import os\nos.environ['LEAK'] = '1'", "import os\nfound = 'LEAK' in os.environ"),
    "modules": ("import sys\nsys.modules['leak'] = sys", "import sys\nfound = 'leak' in sys.modules"),
    "module search": ("import sys\nsys.path.insert(0, '/leak')", "import sys\nfound = '/leak' in sys.path"),
    "patched module": ("import json\njson.leak = 0", "import json\nfound = hasattr(json, 'leak')"),
    "patched numpy": ("import numpy\nnumpy.leak = 1", "import numpy\nfound = hasattr(numpy, 'leak')"),
    "numpy's constants": ("import numpy\nnumpy.pi = 3", "import numpy\nfound = numpy.pi == 3"),
    "a file": ("open('leak', 'w').close()", "import os\nfound = os.path.exists('leak')"),
    "a file in /tmp": (f"open('/tmp/{MARK}', 'w').close()", f"import os\nfound = os.path.exists('/tmp/{MARK}')"),
    "a file in /dev/shm": (
        f"open('/dev/shm/{MARK}', 'w').close()",
        f"import os\nfound = os.path.exists('/dev/shm/{MARK}')",
    ),
    "a compiled module": (
        "import os\nos.makedirs('__pycache__')\nopen('numpy.py', 'w').write('leak = 1')",
        "import numpy\nfound = hasattr(numpy, 'leak')",
    ),
    "working directory": ("import os\nos.mkdir('leak')\nos.chdir('leak')", "import os\nfound = 'leak' in os.getcwd()"),
    "file mode mask": ("import os\nos.umask(0)", "import os\nfound = os.umask(0) == 0"),
    "limits": (
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))",
        "import resource\nfound = resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 20",
    ),
    "signal handlers": (
        "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "import signal\nfound = signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN",
    ),
    "flags of standard input": (
        "import fcntl, os\nfcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND)",
        "import fcntl, os\nfound = bool(fcntl.fcntl(0, fcntl.F_GETFL) & os.O_APPEND)",
    ),
    "a lock on standard input": (
        "import fcntl, struct\nfcntl.fcntl(0, 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 1_000_000, 77, 0))",
        (
            "import fcntl, os, struct\nfound = False\ntry:\n"
            "    asked = struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 1_000_000, 77, 0)\n"
            "    told = fcntl.fcntl(os.open('/dev/null', os.O_RDONLY), 36, asked)\n"
            "    found = struct.unpack('hhqqi4x', told)[0] != fcntl.F_UNLCK\n"
            "except OSError: pass"
        ),
    ),
    "a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "import threading\nfound = threading.active_count() > 1",
    ),
    "memory shared as System V does": (
        "import ctypes\nif ctypes.CDLL(None).shmget(424242, 4096, 0o1666) < 0: raise OSError",
        "import ctypes\nfound = ctypes.CDLL(None).shmget(424242, 4096, 0) >= 0",
    ),
    "a queue of messages": (
        "import ctypes\nif ctypes.CDLL(None).msgget(424242, 0o1666) < 0: raise OSError",
        "import ctypes\nfound = ctypes.CDLL(None).msgget(424242, 0) >= 0",
    ),
    "a POSIX queue of messages": (
        f"import ctypes\nif ctypes.CDLL(None).mq_open(b'/{MARK}', 0o102, 0o666, 0) < 0: raise OSError",
        f"import ctypes\nfound = ctypes.CDLL(None).mq_open(b'/{MARK}', 0) >= 0",
    ),
    "POSIX shared memory": (
        f"from _posixshmem import shm_open\nimport os\nshm_open('/{MARK}', os.O_CREAT | os.O_RDWR, 0o666)",
        f"import os\nfound = os.path.exists('/dev/shm/{MARK}')",
    ),
    "numpy's generator": (
        "import numpy\nnumpy.random.seed(5)\nnumpy.random.bytes(7)",
        (
            "import numpy\nwas = numpy.random.rand()\nnumpy.random.seed(5)\nnumpy.random.bytes(7)\n"
            "found = was == numpy.random.rand()"
        ),
    ),
    "the connection of its supervisor": (
        "pass",
        (
            "import os\nfound = False\n"
            "for fd in range(4, 4096):\n    try: found = bool(os.fstat(fd))\n    except OSError: continue\n    break"
        ),
    ),
    "how it ended": (
        "pass",
        (
            "import sys\nframe = sys._getframe()\nwhile frame.f_code.co_name != '_serve': frame = frame.f_back\n"
            "found = not {'flags', 'others'}.isdisjoint(frame.f_locals)"
        ),
    ),
    "what its supervisor measured": (
        "sum(range(10 ** 5))",
        (
            "import sys\n"
            "sweep = sys.modules['contained.sweep']\n"
            "found = not len(sweep._report) or any(sweep._report.raw)\n"
        ),
    ),
}


@pytest.mark.parametrize(("leave", "look"), LEAVING.values(), ids=LEAVING)
def test_nothing_of_one_candidate_reaches_the_next(arena, leave, look):
    """The second has the supervisor of the first. Those after the third start while it works, or after its end."""
    lines = "".join(f"    {line}\n" for line in leave.splitlines())
    leaving = f"try:\n{lines}except OSError: pass\ndef solve(): return False\n"
    slowly = f"import time\ntime.sleep(0.03)\n{leaving}"
    looking = f"{look}\ndef solve(): return found\n"
    problem = make_problem(cases=[{"input": [], "expected": False}])
    for evaluation in arena.evaluate(problem, [leaving, looking, slowly, slowly, looking]):
        assert evaluation.rewards == (1.0,), evaluation
    arena.check()


@pytest.mark.parametrize("generator", ["numpy.random.rand()", "random.random()"])
def test_generators_start_from_the_seed_and_nothing_else(any_arena, generator):
    first = f"import numpy, random\nvalue = {generator}\n"
    used = f"import numpy, random\nfor _ in range(99): {generator}\nvalue = 0\n"
    answering = "print(value)\ndef solve(): return 0\n"
    problem = make_problem(cases=[{"input": [], "expected": 0}])
    programs = [first + answering, used + answering, first + answering, first + answering]
    same, _, again, other = any_arena.evaluate(problem, programs, seeds=[7, 7, 7, 8])
    assert same.artifacts == again.artifacts != other.artifacts
    assert float(same.artifacts["stdout"]) != 0


def test_fresh_entropy_is_not_shared(arena):
    program = "import os, uuid\nprint(os.urandom(8).hex(), uuid.uuid4())\ndef solve(): return 0\n"
    problem = make_problem(cases=[{"input": [], "expected": 0}])
    printed = {e.artifacts["stdout"] for e in arena.evaluate(problem, [program] * 5)}
    assert len(printed) == 5


@pytest.mark.parametrize("name", [each for each in CONTAINING if each.startswith("A")])
def test_process_ids_do_not_tell_what_a_predecessor_used(enter, name):
    ids = "t = threading.Thread(target=int)\nt.start()\nt.join()\nprint(os.getpid(), t.native_id)\n"
    first = f"import os, threading\n{ids}def solve(): return 0\n"
    many = f"import os, threading\nfor _ in range(40):\n    t = threading.Thread(target=int)\n    t.start()\n{first}"
    problem = make_problem(cases=[{"input": [], "expected": 0}])
    one, *_, last = enter(name).evaluate(problem, [first, many, many, first, first])
    assert one.artifacts["stdout"] == last.artifacts["stdout"]
