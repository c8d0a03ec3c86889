"""Run a command and sample its processes: processor time, memory and finished evaluations.

A control group counts the processor time where this process may create one, as root may; short processes whose parent
does not wait for them count as well. Elsewhere the times of living processes and of those that they waited for are
added up.
"""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

INTERVAL_S: Final = 0.25
ADDRESS_SPACE: Final = 8 << 30
"""Limit of every process of a peer: a mutation may ask for all memory of the machine."""
_MEMORY_EVERY: Final = 8
_GROUPS: Final = {"cpuacct": "cpuacct.usage", "": "cpu.stat"}
"""Folders of control groups below their root, versions 1 and 2, and the file that holds the processor time."""
_REAPER: Final = Path(__file__).with_name("reaper.py")
SETTLE_S: Final = 15.0
"""Seconds after a kill; what still runs then counts as left behind."""

_numbers = itertools.count()


@dataclass
class Sample:
    """The tree at one time.

    Attributes:
        seconds: Since the start of the measurement.
        processor_s: User and system time of all its processes, ended ones included.
        memory: Proportional set size of the tree in bytes; 0 if not measured this time.
        evaluations: Finished evaluations.
    """

    seconds: float
    processor_s: float
    memory: int
    evaluations: int


@dataclass(frozen=True, slots=True)
class Group:
    """A control group.

    Attributes:
        folder: Its folder.
        usage: File of its processor time.
    """

    folder: Path
    usage: Path

    def join(self) -> None:
        """Move this process into it."""
        (self.folder / "cgroup.procs").write_text("0")

    def processor_s(self) -> float:
        """Return the processor time of all processes that were in it."""
        text = self.usage.read_text()
        return int(text.split()[1]) / 1e6 if self.usage.name == "cpu.stat" else int(text) / 1e9

    def remove(self) -> None:
        """Remove it if it is empty."""
        with suppress(OSError):
            self.folder.rmdir()


def new_group(root: Path = Path("/sys/fs/cgroup")) -> Group | None:
    """Create a control group, or return None where that is not allowed."""
    for below, usage in _GROUPS.items():
        folder = root / below / f"speciate-peers-{os.getpid()}-{next(_numbers)}"
        with suppress(OSError):
            folder.mkdir()
            group = Group(folder, folder / usage)
            if group.usage.exists():
                return group
            group.remove()
    return None


def accounting() -> str:
    """Return what the processor times of this machine are those of."""
    if (group := new_group()) is None:
        return "the processes that were seen and of those that they waited for, so that some may be missing"
    group.remove()
    return "a control group, so that none is missing"


@dataclass
class Tree:
    """A command with all of its descendants, below the process that reaps them.

    Attributes:
        process: The reaper.
        group: Control group of all; None without one.
        known: All members seen so far.
    """

    process: subprocess.Popen[bytes]
    group: Group | None
    known: dict[int, psutil.Process] = field(default_factory=dict)
    _most_s: float = 0.0

    @property
    def root(self) -> int:
        """Process id of the reaper."""
        return self.process.pid

    def members(self) -> list[psutil.Process]:
        """Return the living members."""
        for pid in [self.root, *self.known]:
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if pid not in self.known or process == self.known[pid]:
                    self.known[pid] = process
                    for child in process.children(recursive=True):
                        self.known.setdefault(child.pid, child)
        return [p for p in self.known.values() if p.is_running() and _status(p) != psutil.STATUS_ZOMBIE]

    def processor_s(self) -> float:
        """Return the processor time of all members, and of ended ones as far as it is counted."""
        if self.group is not None:
            return self.group.processor_s()
        total = 0.0
        for process in self.members():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        self._most_s = max(self._most_s, total)  # the times of a process are gone with the one that waited for it
        return self._most_s

    def memory(self) -> int:
        """Return the proportional set size of all members in bytes: shared pages count once."""
        total = 0
        for process in self.members():
            with suppress(psutil.Error):
                total += process.memory_full_info().pss
        return total

    def kill(self) -> None:
        """End all members."""
        for process in self.members():
            with suppress(psutil.Error):
                process.kill()
        if self.group is not None:
            self.group.remove()


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.Error:
        return psutil.STATUS_ZOMBIE


def spawn(command: Sequence[str], environment: Mapping[str, str], log: Path, *, limited: bool) -> Tree:
    """Start a command below a reaper, in a session of its own, with its output in a file."""
    group = new_group()

    def limit() -> None:
        if group is not None:
            group.join()
        if limited:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, str(_REAPER), *command], env=dict(environment), stdout=file, stderr=file,
            stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=limit,  # noqa: PLW1509  # one thread calls this, before any other starts
        )  # fmt: skip
    return Tree(process, group)


def watch(
    tree: Tree, evaluations: Callable[[], int], finished: Callable[[], bool], limit_s: float, stop_at: int | None = None
) -> list[Sample]:
    """Sample until the command has finished, the time is over, or so many evaluations are done."""
    began = time.monotonic()
    samples: list[Sample] = []
    while True:
        seconds = time.monotonic() - began
        memory = tree.memory() if len(samples) % _MEMORY_EVERY == 3 else 0
        samples.append(Sample(seconds, tree.processor_s(), memory, evaluations()))
        done = finished()
        if done or seconds > limit_s or (stop_at is not None and samples[-1].evaluations >= stop_at):
            return samples
        time.sleep(INTERVAL_S)


def kill_main(tree: Tree, settle_s: float = SETTLE_S) -> int:
    """Kill the main process alone, as the kernel does when memory is short; return how many others live on."""
    members = tree.members()
    main = next((process.pid for process in members if process.ppid() == tree.root), None)
    if main is not None:  # else it has ended by itself
        os.kill(main, signal.SIGKILL)
    time.sleep(settle_s)
    left = sum(process.pid not in (main, tree.root) for process in tree.members())
    tree.kill()
    return left
