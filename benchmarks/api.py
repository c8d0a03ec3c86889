"""CPU time of requests and events in one API process and PostgreSQL, by route."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from uuid import UUID

import httpx

from benchmarks.chaos.callers import _MIX
from benchmarks.chaos.wire import Replicas, events
from benchmarks.figures import Figure, record
from benchmarks.parts import processor_seconds, show
from speciate.cli.local_service import LocalService
from speciate.embedded.processes import ChildCommand
from speciate.local_ports import find_free_port
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores
from tests.dashboard import samples

ROOT = Path(__file__).parents[1]
RUNS = 10
UNITS = 30
CONNECTIONS = 16
REQUESTS = 1_600
STARTS = 400
VIEWERS = 100
COMMITS = 60


class _ApiAlone(LocalService):
    """PostgreSQL, Valkey and the API as in production, without workers, and beside it the bare API."""

    def _process_commands(self) -> Iterator[ChildCommand]:
        yield next(super()._process_commands())
        self.bare_port = find_free_port()
        url = self.settings.database_url
        assert url is not None
        variables = self._environment() | {"BARE_DATABASE_URL": url.get_secret_value()}
        argv = [sys.executable, "-m", "uvicorn", "benchmarks.bare_api:app", "--port", str(self.bare_port)]
        argv.append("--no-access-log")
        yield ChildCommand("api-bare", argv, variables, self.log_of("api-bare"), death_signal=SIGKILL)

    def _environment(self) -> dict[str, str]:
        # Child processes must import this checkout, whatever their working directory.
        return super()._environment() | {"PYTHONPATH": str(ROOT)}


@dataclass(frozen=True)
class _Meter:
    """Processor seconds so far of the API, PostgreSQL and Valkey."""

    stack: LocalService
    process: str = "api"

    def read(self) -> tuple[float, float, float]:
        assert self.stack.servers is not None
        servers = self.stack.servers.poll()
        pids = (self.stack.poll()[self.process].pid, servers["postgres"].pid, servers["valkey"].pid)
        api, postgres, valkey = (processor_seconds([pid]) for pid in pids)
        return api, postgres, valkey


def run(settings: Settings) -> None:
    """Measure and print the tables."""
    with _ApiAlone(settings.model_copy(update={"policy_url": "http://127.0.0.1:9/v1"})) as stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        try:
            runs = [_filled(stores, seed) for seed in range(RUNS)]
            bare = _cost(_Meter(stack, "api-bare"), stack.bare_port, runs, ["/v1/runs/{run}"])
            _routes(_Meter(stack), stack.settings.port, runs, bare)
            _starts(_Meter(stack), stack.settings.port, stores, runs[0])
            _streams(_Meter(stack), stack.settings.port, stores, runs)
        finally:
            stores.close()


def _filled(stores: Stores, seed: int) -> UUID:
    run_id = samples.start(stores, samples.antenna(), samples.mutator(), 10**6, seed=seed)
    samples.work(stores, run_id, UNITS)
    return run_id


def _cost(meter: _Meter, port: int, runs: list[UUID], paths: list[str]) -> tuple[float, float, float, float]:
    """Return milliseconds of the API, PostgreSQL and Valkey for each request, and responses per second."""
    wanted = [paths[i % len(paths)].format(run=runs[i % RUNS]) for i in range(REQUESTS)]
    asyncio.run(_ask(port, wanted[: REQUESTS // 8]))  # what is done once for the process is not counted
    before, begun = meter.read(), time.perf_counter()
    asyncio.run(_ask(port, wanted))
    seconds = time.perf_counter() - begun
    api, postgres, valkey = ((b - a) / REQUESTS * 1e3 for a, b in zip(before, meter.read(), strict=True))
    return api, postgres, valkey, REQUESTS / seconds


def _routes(meter: _Meter, port: int, runs: list[UUID], bare: tuple[float, float, float, float]) -> None:
    mixed = [path for path, share in _MIX for _ in range(share)]
    costs = {"bare FastAPI and SQLAlchemy, one row": bare}
    for name, paths in (*((path, [path]) for path, _ in _MIX), ("all, as the storm mixes them", mixed)):
        costs[name] = _cost(meter, port, runs, paths)
    record("api: GET of a run", Figure(costs["/v1/runs/{run}"][0], "ms", 0.8))
    record("api: GET of a run against bare FastAPI", Figure(costs["/v1/runs/{run}"][0] / bare[0], "×", scales=False))
    show(
        f"API: {RUNS} runs, {REQUESTS} requests of each kind over {CONNECTIONS} connections, one process",
        ["route", "API, CPU ms", "PostgreSQL", "Valkey", "answers/s"],
        [(name, *(f"{each:.2f}" for each in cost[:3]), cost[3]) for name, cost in costs.items()],
    )


def _starts(meter: _Meter, port: int, stores: Stores, like: UUID) -> None:
    """Measure starting runs of the same problem and policy."""
    run = stores.runs.get(like)
    body = {"problem": run.problem, "policy": run.policy, "budget": {"evaluations": 100}}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client:
        for seed in range(STARTS):
            if seed == STARTS // 8:  # what is done once for the process is not counted
                before = meter.read()
            client.post("/v1/runs", json=body | {"seed": seed}).raise_for_status()
    counted = STARTS - STARTS // 8
    api, postgres, valkey = ((b - a) / counted * 1e3 for a, b in zip(before, meter.read(), strict=True))
    record("api: POST of a run", Figure(api, "ms", 4))
    columns = ["", "API, CPU ms", "PostgreSQL", "Valkey"]
    show(f"API: start of a run, {counted} requests", columns, [("POST /v1/runs", api, postgres, valkey)])


async def _ask(port: int, paths: list[str]) -> None:
    waiting = iter(paths)

    async def one() -> None:
        client = Replicas([port])
        for path in waiting:
            status, _ = await client.get(path)
            if status != 200:
                raise RuntimeError(f"{path} was answered with {status}")
        client.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))


def _streams(meter: _Meter, port: int, stores: Stores, runs: list[UUID]) -> None:
    rows = []
    for name, viewers, watched in (
        ("no viewer", 0, 1),
        ("1 viewer of one run", 1, 1),
        (f"{VIEWERS} viewers of one run", VIEWERS, 1),
        (f"{VIEWERS} viewers of {RUNS} runs", VIEWERS, RUNS),
    ):
        cost, seconds, sent = asyncio.run(_watch(meter, port, stores, runs[:watched], viewers))
        api, postgres, _ = (each * 1e3 for each in cost)
        per_event = f"{api / sent:.3f}" if sent else "-"
        rows.append((name, f"{api / COMMITS:.2f}", f"{postgres / COMMITS:.2f}", f"{sent:,}", per_event, seconds))
    show(
        f"API: streams of events, {COMMITS} units of work booked meanwhile",
        ["watched by", "API, CPU ms/commit", "PostgreSQL with the booking", "events sent", "API, ms/event", "s"],
        rows,
    )


async def _watch(
    meter: _Meter, port: int, stores: Stores, runs: list[UUID], viewers: int
) -> tuple[tuple[float, ...], float, int]:
    """Return processor seconds, seconds, and events that were sent, while work is booked."""
    last = {run_id: stores.runs.get(run_id).last_event for run_id in runs}
    seen = 0

    async def view(run_id: UUID) -> None:
        nonlocal seen
        async for _ in events(port, str(run_id), last[run_id]):
            seen += 1

    watching = [asyncio.create_task(view(runs[i % len(runs)])) for i in range(viewers)]
    await asyncio.sleep(1.0)
    before, begun = meter.read(), time.perf_counter()
    for i in range(COMMITS):
        await asyncio.to_thread(samples.work, stores, runs[i % len(runs)], 1)
    seconds = time.perf_counter() - begun
    expected = sum(stores.runs.get(runs[i % len(runs)]).last_event - last[runs[i % len(runs)]] for i in range(viewers))
    while seen < expected:
        await asyncio.sleep(0.02)
    cost = tuple(b - a for a, b in zip(before, meter.read(), strict=True))
    for task in watching:
        task.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    return cost, seconds, seen
