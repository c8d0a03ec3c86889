"""Run a command and sample its process tree: processor time, memory and finished evaluations."""

from __future__ import annotations

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
_REAPER: Final = Path(__file__).with_name("reaper.py")


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


@dataclass
class Tree:
    """A command with all of its descendants, below the process that reaps them.

    Attributes:
        root: Process id of the reaper.
        known: All members seen so far.
    """

    root: int
    known: dict[int, psutil.Process] = field(default_factory=dict)

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
        """Return the processor time of all members and of the descendants that they waited for."""
        total = 0.0
        for process in self.members():
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

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


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.Error:
        return psutil.STATUS_ZOMBIE


def spawn(
    command: Sequence[str], environment: Mapping[str, str], log: Path, *, limited: bool
) -> subprocess.Popen[bytes]:
    """Start a command below a reaper, in a session of its own, with its output in a file."""

    def limit() -> None:
        if limited:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, str(_REAPER), *command], env=dict(environment), stdout=file, stderr=file,
            stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=limit,  # noqa: PLW1509  # one thread calls this, before any other starts
        )  # fmt: skip


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


def kill_main(tree: Tree, settle_s: float = 3.0) -> int:
    """Kill the main process alone, as the kernel does when memory is short; return how many others live on."""
    members = tree.members()
    main = next((process.pid for process in members if process.ppid() == tree.root), None)
    if main is not None:  # else it has ended by itself
        os.kill(main, signal.SIGKILL)
    time.sleep(settle_s)
    left = sum(process.pid not in (main, tree.root) for process in tree.members())
    tree.kill()
    return left
