"""Find the bottleneck with ten and a hundred hosts: a queueing simulation calibrated on one host.

Lanes go round: ask the policy, book the proposals, wait for a slot, evaluate, book the results. Each booking is a
transaction that takes a core of PostgreSQL and holds the lock of its run; each dispatch is a message of the broker. The
service times are those of docs/evidence/benchmarks.md; ``measure`` measures the sizes again. Times in seconds.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import sqlalchemy as sa

from benchmarks.parts import CONSOLE, policy, problem, show, spec
from benchmarks.spinning import SpinningEvaluator
from experiments.svg import save_svg
from speciate.policies import build_client
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores

PICTURE: Final = Path(__file__).parents[1] / "docs" / "evidence" / "pictures" / "scale-out.svg"
HOSTS: Final = (1, 3, 10, 30, 100)
EVALUATIONS: Final = (0.001, 0.01, 0.1, 1.0)
SLOTS: Final = 16
"""Evaluations at once on a host of 16 cores."""

MESSAGE_S: Final = 0.32e-3
"""Processor time of Valkey for a booking: the archive update, the work message, the wake-up of streams."""

_WARM_UP: Final = 0.5
_EVENTS: Final = 40_000
_SIZES: Final = 4_800


@dataclass(frozen=True)
class Cluster:
    """Hosts and what they cost.

    Attributes:
        hosts: Worker hosts of ``SLOTS`` slots.
        evaluation_s: One evaluation.
        batch: Candidates a unit of work.
        databases: Installations, each PostgreSQL and Valkey, that the runs are divided among.
        cores: Cores of each.
        policy_s: One request to the policy, whose servers are taken to grow with the hosts.
        round_trip_s: Network, between a worker and PostgreSQL.
    """

    hosts: int
    evaluation_s: float
    batch: int = 16
    databases: int = 1
    cores: int = 16
    policy_s: float = 1.0
    round_trip_s: float = 0.0003

    @property
    def slots(self) -> int:
        """Evaluations at once."""
        return self.hosts * SLOTS

    @property
    def booking_s(self) -> float:
        """Processor time of PostgreSQL for one of the two transactions of a batch: measured at 16, 64 and 256."""
        return (5.0e-3 + 0.13e-3 * self.batch) / 2

    @property
    def locked_s(self) -> float:
        """Time for which a transaction locks its run: its CPU time and three round trips."""
        return self.booking_s + 3 * self.round_trip_s

    @property
    def most_batches(self) -> float:
        """Batches a second that the scarcest of slots, PostgreSQL and broker allows."""
        database = self.databases * self.cores / (2 * self.booking_s)
        return min(self.slots / self.evaluating_s, database, self.databases / (2 * MESSAGE_S))

    @property
    def evaluating_s(self) -> float:
        """One batch in a slot, with what the worker does around it."""
        return self.batch * self.evaluation_s + 6.4e-3


@dataclass(frozen=True)
class Found:
    """Result of a simulation. Shares are fractions of the time."""

    per_second: float
    database: float
    broker: float
    slots: float
    wait_p95_s: float
    commits: float


class _Station:
    """Servers with one queue, first come first served."""

    def __init__(self, servers: int) -> None:
        self.free = servers
        self.servers = servers
        self.waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self.busy_s = 0.0


@dataclass
class _Simulation:
    cluster: Cluster
    rng: np.random.Generator
    now: float = 0.0
    done: int = 0
    counting: bool = False
    waits: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        c = self.cluster
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._ties = itertools.count()
        self.databases = [_Station(c.cores) for _ in range(c.databases)]
        self.brokers = [_Station(1) for _ in range(c.databases)]
        self.evaluators = _Station(c.slots)
        # Half as many lanes again as keep what is scarcest busy, in runs of eight.
        cycle_s = c.policy_s + c.evaluating_s + 2 * (c.locked_s + MESSAGE_S)
        self.runs = [_Station(1) for _ in range(int(1.5 * c.most_batches * cycle_s / 8) + 1)]
        for lane in range(8 * len(self.runs)):
            self._at(float(self.rng.uniform(0, c.policy_s)), self._credentials_of(lane))

    def run(self, events: int) -> Found:
        """Run so many events after the warm-up."""
        self._take(int(events * _WARM_UP) + 8 * 8 * len(self.runs))
        self.done, self.waits, self.counting, begun = 0, [], True, self.now
        for station in (*self.databases, *self.brokers, self.evaluators):
            station.busy_s = 0.0
        self._take(events)
        seconds, c = self.now - begun, self.cluster

        def share(stations: list[_Station]) -> float:
            return sum(s.busy_s for s in stations) / seconds / sum(s.servers for s in stations)

        return Found(
            per_second=self.done * c.batch / seconds,
            database=share(self.databases),
            broker=share(self.brokers),
            slots=share([self.evaluators]),
            wait_p95_s=float(np.percentile(self.waits, 95)) if self.waits else 0.0,
            commits=2 * self.done / seconds,
        )

    def _take(self, events: int) -> None:
        for _ in range(events):
            self.now, _, act = heapq.heappop(self._agenda)
            act()

    def _at(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now + delay_s, next(self._ties), act))

    def _serve(self, station: _Station, service_s: float, then: Callable[[], None], *, told: bool = False) -> None:
        asked = self.now

        def begin() -> None:
            if told and self.counting:
                self.waits.append(self.now - asked)
            station.busy_s += service_s
            self._at(service_s, end)

        def end() -> None:
            if station.waiting:
                station.waiting.popleft()[1]()
            else:
                station.free += 1
            then()

        if station.free:
            station.free -= 1
            begin()
        else:
            station.waiting.append((asked, begin))

    def _book(self, lane: int, then: Callable[[], None]) -> None:
        """One transaction: the run's lock, then a core, then the message of the next unit."""
        run = self.runs[lane // 8]
        database = self.databases[lane // 8 % len(self.databases)]
        core_s = float(self.rng.exponential(self.cluster.booking_s))
        trips_s = self.cluster.locked_s - self.cluster.booking_s

        def locked() -> None:
            self._serve(database, core_s, lambda: self._at(trips_s, committed))

        def committed() -> None:
            if run.waiting:
                run.waiting.popleft()[1]()
            else:
                run.free += 1
            self._serve(self.brokers[lane // 8 % len(self.brokers)], MESSAGE_S, then)

        if run.free:
            run.free -= 1
            locked()
        else:
            run.waiting.append((self.now, locked))

    def _credentials_of(self, lane: int) -> Callable[[], None]:
        return lambda: self._book(lane, lambda: self._evaluate(lane))

    def _evaluate(self, lane: int) -> None:
        c = self.cluster
        # Evaluations of a batch vary, their sum less: the spread of sixteen exponential times.
        service_s = 6.4e-3 + float(self.rng.gamma(c.batch, c.evaluation_s))
        self._serve(self.evaluators, service_s, lambda: self._book(lane, lambda: self._next(lane)), told=True)

    def _next(self, lane: int) -> None:
        self.done += 1
        self._at(float(self.rng.exponential(self.cluster.policy_s)), self._credentials_of(lane))


def simulate(cluster: Cluster, *, seed: int = 0, events: int = _EVENTS) -> Found:
    """Return what a cluster does; the same seed gives the same answer."""
    return _Simulation(cluster, np.random.default_rng(seed)).run(events)


def run(settings: Settings) -> None:
    """Measure the sizes, simulate, print the tables and draw the picture."""
    _show_sizes(settings)
    found = {(e, h): simulate(Cluster(h, e)) for e in EVALUATIONS for h in HOSTS}
    show(
        f"One PostgreSQL of 16 cores, hosts of {SLOTS} slots, batches of 16, policies that answer in 1 s (simulated)",
        ["evaluation", "hosts", "candidates/s", "of the slots", "database", "broker", "p95 wait for a slot, s"],
        [(f"{e * 1000:g} ms", hosts, f.per_second, *_shares(f), f.wait_p95_s) for (e, hosts), f in found.items()],
    )
    base = Cluster(100, 0.01)
    steps = {
        "as above, 100 hosts, 10 ms": base,
        "batches of 64": replace(base, batch=64),
        "and PostgreSQL of 64 cores": replace(base, batch=64, cores=64),
        "and two installations": replace(base, batch=64, cores=64, databases=2),
    }
    stepped = {name: simulate(cluster) for name, cluster in steps.items()}
    show(
        "What an operator changes (simulated)",
        ["", "candidates/s", "of the slots", "database", "broker"],
        [(name, f.per_second, *_shares(f)) for name, f in stepped.items()],
    )
    draw(found, PICTURE)
    CONSOLE.print(f"The picture is {PICTURE.name}.")


def _shares(found: Found) -> tuple[str, str, str]:
    return f"{found.slots:.0%}", f"{found.database:.0%}", f"{found.broker:.0%}"


def draw(found: dict[tuple[float, int], Found], path: Path) -> None:
    """Draw candidates a second against hosts, one line for each length of an evaluation."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for evaluation in EVALUATIONS:
        rates = [found[evaluation, hosts].per_second for hosts in HOSTS]
        (line,) = axes.plot(HOSTS, rates, marker="o", label=f"{evaluation * 1000:g} ms an evaluation")
        ideal = [min(h * SLOTS / Cluster(h, evaluation).evaluating_s * 16, 1e6) for h in HOSTS]
        axes.plot(HOSTS, ideal, linestyle=":", color=line.get_color())
    base = Cluster(1, 0.01)
    limits = {"PostgreSQL, 16 cores": base.cores / (2 * base.booking_s) * 16, "Valkey": 16 / (2 * MESSAGE_S)}
    for (name, limit), place in zip(limits.items(), ((0, 4), (0, -11)), strict=True):
        axes.axhline(limit, color="0.4", linewidth=1)
        axes.annotate(name, (0.82, limit), xytext=place, textcoords="offset points", color="0.3", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="worker hosts of 16 slots", ylabel="candidates a second")
    axes.set_xticks(HOSTS, [str(h) for h in HOSTS])
    axes.set_title("Simulated; dotted: what the slots alone would do", fontsize=10)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    save_svg(figure, path)
    plt.close(figure)


_TABLES = ("candidates", "rollouts", "prompts", "events", "work", "elites", "claims", "results")


def _show_sizes(settings: Settings) -> None:
    """Measure bytes a candidate, in tables and indexes and in the write-ahead log."""
    from speciate.embedded.servers import EmbeddedServers
    from speciate.storage.migrate import upgrade

    with EmbeddedServers(settings.data_dir.with_name("sizes")) as servers:
        endpoints = servers.start()
        urls = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        stores = open_stores(Settings.model_validate({**settings.model_dump(), **urls}))
        upgrade(stores.engine)
        before = _wal(stores)
        signals = LocalQueue()
        stored, _ = stores.catalog.add_problem(problem())
        registered, _ = stores.catalog.add_policy(policy())
        start_run(
            stores.runs,
            signals,
            prepare_run(stores.runs, problem=stored, policies=RunPolicies(registered), spec=spec(_SIZES)),
        )
        executor = WorkExecutor(stores.work, signals, SpinningEvaluator(), build_client)
        drain(executor, signals)
        written = _wal(stores) - before
        with stores.engine.connect() as connection:
            size = sa.text("SELECT pg_table_size(:name), pg_indexes_size(:name)")
            sizes = {name: connection.execute(size, {"name": name}).one() for name in _TABLES}
        stores.close()
    rows = [(n, s[0] / _SIZES, s[1] / _SIZES, (s[0] + s[1]) / _SIZES * 1e8 / 1e9) for n, s in sizes.items()]
    total = tuple(sum(row[i] for row in rows) for i in (1, 2, 3))
    show(
        f"Bytes a candidate: programs of a dozen lines, batches of 16, {_SIZES:,} candidates",
        ["", "table", "indexes", "GB at 1e8"],
        [*rows, ("all", *total)],
        f"Write-ahead log: {written / _SIZES:,.0f} bytes a candidate.",
    )


def _wal(stores: Stores) -> int:
    with stores.engine.connect() as connection:
        return int(connection.execute(sa.text("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")).scalar_one())
