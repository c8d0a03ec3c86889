"""Arenas: one tier as one user, in a process of its own that an attack can do its worst to."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

NOT_TRIED = "not tried here: "
"""What the reason of every skip in this folder begins with; the summary names them all."""

CONTAINING = [
    f"{tier} as {user}" for tier in "AB" for user in ("root", "an ordinary user") if user != "root" or os.geteuid() == 0
]
"""The arenas whose walls must hold."""

UNSAFE = "unsafe"

GOOD = "def solve(x):\n    return 2 * x\n"
CASES = [{"input": [i], "expected": 2 * i} for i in range(4)]

SHORT = {"wall_s": 0.4, "cpu_s": 1, "log_bytes": 4096}
"""For what never ends."""
PATIENT = {"wall_s": 20, "cpu_s": 20, "log_bytes": 4096}
"""For what ends: on a loaded machine a program needs time to show what it does."""

SECRET = "sesame-environment-161803"
"""In the environment and on the command line of every arena, where only its worker may read it."""

# No account has these ids, and no tier uses them: those begin at 30000. One for each arena of each test worker.
_USERS = itertools.count(20_000 + os.getpid() % 990 * 10)

MARK = f"speciate-attack-{os.getpid()}-{time.time_ns() % 10**9}"
"""In the name of whatever an attack makes; unlike that of another test worker's."""

_EVALUATIONS = TypeAdapter(list[Evaluation])
_NUMBERS = itertools.count()


class ArenaClosedError(Exception):
    """This machine cannot run the arena; the text says why."""


def make_problem(**fields: Any) -> Problem:
    """Return a problem of kind ``cases`` that ``2 * x`` solves, with some fields replaced."""
    return Problem.model_validate(
        {
            "slug": "attacked",
            "title": "Attacked",
            "kind": "cases",
            "objectives": [{"name": "score"}],
            "targets": [{"name": "all", "rule": "score >= 1", "unlock": True}],
            "cases": CASES if "evaluator" not in fields else [],
            "limits": PATIENT,
            **fields,
        }
    )


class Arena:
    """A process that holds the worker of one tier as one user.

    Attributes:
        name: Tier, and user where that is a choice.
        tier: Tier.
        root: Whether its worker runs as root.
        user: Its worker's user id.
        space: Its folder for temporary files; only what its family makes is in there.
        pid: The worker's process.
    """

    def __init__(self, name: str) -> None:
        """Start it and evaluate once.

        Raises:
            ArenaClosedError: This machine cannot run it.
        """
        self.name, self.tier = name, name.partition(" ")[0]
        self.root = os.geteuid() == 0 and not name.endswith("ordinary user")
        self.space = Path(tempfile.mkdtemp(prefix=f"{MARK}-"))
        self.user = next(_USERS) if os.geteuid() == 0 and not self.root else os.geteuid()
        command = [sys.executable, str(HERE / "serve.py"), self.tier, SECRET]
        if self.user != os.geteuid():
            os.chown(self.space, self.user, self.user)
            needed = [sys.base_prefix, sys.prefix, str(ROOT)]
            command = [sys.executable, str(HERE / "as_user.py"), str(self.user), *needed, "--", *command]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),  # this checkout is attacked, whichever one is installed
                "HOME": str(self.space),
                "TMPDIR": str(self.space),
                "LANG": "C.UTF-8",
                "SPECIATE_DATABASE_URL": SECRET,
            },
        )
        self.pid = self._process.pid
        self._orphans: set[int] = set()
        self._answers: dict[int, dict[str, Any]] = {}
        self._reading = threading.Lock()
        try:
            self.check()
            self.settle()
        except (AssertionError, BrokenPipeError, ArenaClosedError) as error:
            self._process.kill()
            said = self._process.communicate()[1].strip().splitlines()
            self.close()
            raise ArenaClosedError(said[-1] if said else str(error)) from None

    def begin(self, problem: Problem, programs: Sequence[str], seeds: Sequence[int] | None = None) -> int:
        """Start evaluating and return the number under which to collect the results."""
        number = next(_NUMBERS)
        seeds = [0] * len(programs) if seeds is None else seeds
        task = {
            "number": number,
            "problem": problem.model_dump(mode="json"),
            "programs": [*programs],
            "seeds": [*seeds],
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        return number

    def collect(self, number: int) -> list[Evaluation]:
        """Wait for results.

        Raises:
            ArenaClosedError: The worker raised an error instead, or is gone.
        """
        assert self._process.stdout is not None
        with self._reading:
            while number not in self._answers:
                if not (line := self._process.stdout.readline()):
                    raise ArenaClosedError("the worker is gone")
                answer = json.loads(line)
                self._answers[answer["number"]] = answer
        answer = self._answers.pop(number)
        if answer["error"] is not None:
            raise ArenaClosedError(answer["error"])
        return _EVALUATIONS.validate_python(answer["evaluations"])

    def evaluate(
        self, problem: Problem, programs: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[Evaluation]:
        """Evaluate programs and return the results."""
        return self.collect(self.begin(problem, programs, seeds))

    def check(self) -> None:
        """Fail unless a good program passes."""
        (good,) = self.evaluate(make_problem(), [GOOD])
        assert good.rewards == (1.0,), good

    def attack(self, program: str, **fields: Any) -> Evaluation:
        """Evaluate a hostile program and check that the world is as before and that a good one still passes."""
        return self.attacks([program], **fields)[0]

    def attacks(self, programs: Sequence[str], **fields: Any) -> list[Evaluation]:
        """Evaluate hostile programs as one batch, and check the same after it."""
        # What served the evaluation before may still be ending: it need not stay, and nothing may join.
        zygotes, family, files = self.zygotes(), self.family(), self.files()
        evaluations = self.evaluate(make_problem(**fields), programs)
        until(lambda: zygotes <= self.family() <= family)
        assert self.files() == files
        assert left_behind() == []
        self.check()
        until(lambda: zygotes <= self.family() <= family)
        return evaluations

    def family(self) -> set[int]:
        """Return the worker, its zygotes, and whatever else they or their candidates have started."""
        found = processes_with(os.fsencode(self.space)) | processes_of(self._own_user())
        # Only root may read the environment of contained processes: others know them by their parents.
        return found if os.geteuid() == 0 else found | descendants(found | {self.pid})

    def files(self) -> set[str]:
        """Return the temporary files, without the folders that the worker keeps for problems."""
        return {path.name for path in self.space.iterdir() if not path.name.startswith("speciate-files-")}

    def zygotes(self) -> set[int]:
        """Return the processes that the worker itself has started."""
        return {pid for pid in self.family() if parent_of(pid) == self.pid}

    def kill(self) -> None:
        """Kill the worker, without any chance to tidy up."""
        self._orphans = self.family()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """End the worker and check that nothing of it is left."""
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        self._process.wait()
        until(lambda: not self.family() and not any(parent_of(pid) for pid in self._orphans - {self.pid}))
        until(lambda: not self.files())
        shutil.rmtree(self.space)

    def settle(self) -> None:
        """Wait until only those are left that stay."""
        pause_s = 0.05
        same = 0
        family: set[int] = set()
        while same < 3:
            same = same + 1 if family == (family := self.family()) else 0
            time.sleep(pause_s)

    def _own_user(self) -> int | None:
        """Return the dedicated user id, if there is one."""
        return self.user if self.user != os.geteuid() else None


def until(holds: Callable[[], bool], limit_s: float = 60) -> None:
    """Wait for something that must become true."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.003)


def processes_with(mark: bytes) -> set[int]:
    """Return the processes whose environment, command line or working directory holds ``mark``, but this one."""
    found = set()
    for pid in _processes():
        try:
            place = os.fsencode(os.readlink(f"/proc/{pid}/cwd"))  # noqa: PTH115
            if mark in place or mark in _told(pid, "cmdline") or mark in _told(pid, "environ"):
                found.add(pid)
        except OSError:
            continue  # it has ended
    return found - {os.getpid()}


def processes_of(user: int | None) -> set[int]:
    """Return the processes of a user, if one is given."""
    found = set()
    for pid in _processes() if user is not None else ():
        try:
            status = _told(pid, "status")
            # One that has ended and whose parent has, too, waits for the machine's first process to take note.
            if b"\nUid:\t%d\t" % user in status and b"\nState:\tZ" not in status:
                found.add(pid)
        except OSError:
            continue
    return found


def parent_of(pid: int) -> int | None:
    """Return the parent of a process, or None when it has ended."""
    try:
        state, parent, *_ = _told(pid, "stat").rpartition(b")")[2].split()
    except OSError:
        return None
    return None if state == b"Z" else int(parent)


def descendants(pids: set[int]) -> set[int]:
    """Return the processes below some others."""
    found: set[int] = set()
    parents = {pid: parent_of(pid) for pid in _processes()}
    while below := {pid for pid, parent in parents.items() if parent in pids | found} - found:
        found |= below
    return found


def left_behind() -> list[Path]:
    """Return what attacks have made in places where everybody may write, and the image of any crash."""
    shared = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/"]
    spaces = f"{MARK}-"
    marked = [path for place in shared for path in Path(place).glob(f"*{MARK}*") if not path.name.startswith(spaces)]
    return marked + [path for place in [*shared, str(ROOT)] for path in Path(place).glob("core*") if path.is_file()]


def _processes() -> list[int]:
    # Strings and not paths, here and above: this is asked thousands of times, and paths take most of its time.
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def _told(pid: int, what: str) -> bytes:
    with open(f"/proc/{pid}/{what}", "rb", buffering=0) as file:  # noqa: PTH123
        return file.read()
