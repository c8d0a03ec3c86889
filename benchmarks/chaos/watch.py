"""Resources of each kind of process over time: memory, file descriptors, threads, connections, temporary files."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from benchmarks.chaos.fleet import Fleet
from speciate.storage.stores import Stores

EVERY_S = 5.0
_CONNECTIONS = sa.text("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")


@dataclass(frozen=True)
class Sample:
    """One look at a kind of process, its children included; ``age_s`` is that of its eldest."""

    at_s: float
    age_s: float
    memory_mb: float
    fds: int
    threads: int


@dataclass
class Watch:
    """Samples a fleet until stopped."""

    fleet: Fleet
    stores: Stores
    temporary: Path
    begun: float
    every_s: float = EVERY_S
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))
    connections: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(self.every_s):
            self.look()

    def look(self) -> None:
        """Take one sample of everything."""
        at = time.monotonic() - self.begun
        for part in self.fleet.parts:
            try:
                root = psutil.Process(self.fleet.pid(part))
                everyone = [root, *root.children(recursive=True)]
                age = time.time() - root.create_time()
                memory = sum(process.memory_full_info().uss for process in everyone) / 1e6  # shared pages left out
                fds = sum(process.num_fds() for process in everyone)
                self.samples[part].append(Sample(at, age, memory, fds, sum(p.num_threads() for p in everyone)))
            except (psutil.Error, OSError, KeyError):
                continue  # it is being restarted
        try:
            with self.stores.engine.connect() as connection:
                self.connections.append(int(connection.execute(_CONNECTIONS).scalar_one()))
        except SQLAlchemyError:
            pass
        self.files.append(sum(1 for _ in self.temporary.rglob("*")))


@dataclass(frozen=True)
class Leak:
    """Something that a kind of process holds more of the longer it all goes on."""

    part: str
    what: str
    first: float
    last: float

    def __str__(self) -> str:
        return f"{self.part} holds more and more {self.what}: {self.first:,.0f}, then {self.last:,.0f}"


_ALLOWED = {"memory_mb": (1.3, 60.0), "fds": (1.3, 40.0), "threads": (1.3, 10.0)}
GROWN_UP_S = 20.0
"""Age from which a process has loaded what it needs."""


def leaks(samples: dict[str, list[Sample]], *, least: int = 30) -> list[Leak]:
    """Return what grew, by more than processes that were restarted at different times differ anyway."""
    found = []
    for part, taken in samples.items():
        old = [sample for sample in taken if sample.age_s >= GROWN_UP_S]
        for what, (factor, slack) in _ALLOWED.items():
            first, last = growth([getattr(sample, what) for sample in old])
            if len(old) >= least and last > factor * first + slack:
                found.append(Leak(part, what, first, last))
    return found


def growth(values: Sequence[float]) -> tuple[float, float]:
    """Return the medians of the first and the last third."""
    third = max(1, len(values) // 3)
    return (statistics.median(values[:third]), statistics.median(values[-third:])) if values else (0.0, 0.0)
