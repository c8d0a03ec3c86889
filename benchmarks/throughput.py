"""Candidates a second and processor time for each, through Celery and in a plain asyncio loop doing the same work."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID

from benchmarks.figures import Figure, record
from benchmarks.parts import SpinningService, begin, median, processor_seconds, service_pids, show, spec, wait_for
from benchmarks.spinning import EVALUATION_S, SpinningEvaluator
from speciate.policies import build_client
from speciate.ports.work import Commit, WorkKind, WorkRef
from speciate.runs.executor import WorkExecutor
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.stores import Stores, open_stores

CANDIDATES = 4800
WARM_UP = 480
REPEATS = 3
SLOTS = 2


@dataclass
class Figures:
    """Measurements of one run."""

    per_second: float
    cpu_ms: float

    @property
    def overhead_ms(self) -> float:
        return self.cpu_ms - EVALUATION_S * 1000


class _Collecting:
    """``Signals`` for the loop: work messages are collected."""

    def __init__(self) -> None:
        self.refs: list[WorkRef] = []

    def committed(self, commit: Commit) -> None:
        self.refs.extend(commit.dispatch)

    def take(self) -> list[WorkRef]:
        refs, self.refs = self.refs, []
        return refs


_stores: Stores


def _open(settings: Settings) -> None:
    global _stores  # noqa: PLW0603 - one connection pool for each process of the executor
    _stores = open_stores(settings)


def _perform(work_id: UUID) -> list[WorkRef]:
    signals = _Collecting()
    executor = WorkExecutor(_stores.work, signals, SpinningEvaluator(), build_client)
    executor.execute(work_id)
    return signals.take()


async def _loop(first: list[WorkRef], threads: ThreadPoolExecutor, processes: ProcessPoolExecutor) -> None:
    """Every unit of work at once: generation in threads, evaluation in a pool of processes."""
    loop = asyncio.get_running_loop()

    def submit(ref: WorkRef) -> asyncio.Future[list[WorkRef]]:
        pool = threads if ref.kind is WorkKind.GENERATE else processes
        return loop.run_in_executor(pool, _perform, ref.id)

    waiting = {submit(ref) for ref in first}
    while waiting:
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        waiting |= {submit(ref) for future in done for ref in future.result()}


def _celery_runs(settings: Settings) -> Iterator[Figures]:
    stack = SpinningService(settings)
    with stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        wait_for(stores, begin(stores, spec(WARM_UP)), WARM_UP)
        while True:
            before, at = processor_seconds(service_pids(stack)), time.perf_counter()
            run_id = begin(stores, spec(CANDIDATES))
            wait_for(stores, run_id, CANDIDATES)
            seconds = time.perf_counter() - at
            cpu = processor_seconds(service_pids(stack)) - before
            yield Figures(CANDIDATES / seconds, cpu / CANDIDATES * 1000)


def _loop_runs(settings: Settings) -> Iterator[Figures]:
    from speciate.embedded.servers import EmbeddedServers
    from speciate.storage.migrate import upgrade

    with EmbeddedServers(settings.data_dir.with_name("loop")) as servers:
        endpoints = servers.start()
        urls = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        reached = Settings.model_validate({**settings.model_dump(), **urls})
        _open(reached)
        upgrade(_stores.engine)
        context = multiprocessing.get_context("spawn")
        with (
            ThreadPoolExecutor(8) as threads,
            ProcessPoolExecutor(SLOTS, mp_context=context, initializer=_open, initargs=(reached,)) as processes,
        ):
            asyncio.run(_loop(_first(WARM_UP), threads, processes))
            while True:
                pids = [*(s.pid for s in servers.poll().values()), *processes._processes]
                before, at = processor_seconds(pids) + time.process_time(), time.perf_counter()
                asyncio.run(_loop(_first(CANDIDATES), threads, processes))
                seconds = time.perf_counter() - at
                cpu = processor_seconds(pids) + time.process_time() - before
                yield Figures(CANDIDATES / seconds, cpu / CANDIDATES * 1000)


def _first(candidates: int) -> list[WorkRef]:
    """Start a run without ringing: the loop is handed its first unit of work."""
    signals = _Collecting()
    from benchmarks.parts import policy, problem
    from speciate.runs.start import prepare_run, start_run

    stored, _ = _stores.catalog.add_problem(problem())
    registered, _ = _stores.catalog.add_policy(policy())
    start_run(
        _stores.runs,
        signals,
        prepare_run(_stores.runs, problem=stored, policies=RunPolicies(registered), spec=spec(candidates)),
    )
    return signals.take()


def run(settings: Settings) -> None:
    """Measure both in turn and print the table."""
    celery, loop = _celery_runs(settings), _loop_runs(settings)
    figures: dict[str, list[Figures]] = {"Celery": [], "asyncio loop": []}
    try:
        for _ in range(REPEATS):
            figures["Celery"].append(next(celery))
            figures["asyncio loop"].append(next(loop))
    finally:
        celery.close()
        loop.close()
    rows = [
        (
            name,
            median([f.per_second for f in each]),
            median([f.cpu_ms for f in each]),
            median([f.overhead_ms for f in each]),
        )
        for name, each in figures.items()
    ]
    ratios = [a.per_second / b.per_second for a, b in zip(figures["Celery"], figures["asyncio loop"], strict=True)]
    record("throughput: Celery", Figure(rows[0][1], "candidates/s", 600, lower=False))
    record("throughput: Celery against a loop", Figure(median(ratios), "×", 0.9, lower=False, scales=False))
    record("throughput: beyond the evaluation", Figure(rows[0][3], "ms", 0.4))
    show(
        f"Work queue: {CANDIDATES} candidates of 1 ms, batches of 16, {SLOTS} slots, median of {REPEATS}",
        ["", "candidates/s", "CPU ms/candidate", "beyond the evaluation"],
        rows,
        f"Celery / loop, run by run: {', '.join(f'{r:.2f}' for r in ratios)}"
        " (targets: 600/s, 0.9, 0.4 ms). CPU counts workers, PostgreSQL, Valkey, API.",
    )
