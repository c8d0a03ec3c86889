"""Processes that freeze, a network that delays and swallows, and clocks that jump: nothing is lost or done twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGKILL
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import psutil
import pytest
import sqlalchemy as sa

from speciate.client import Client
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.messaging.presence import present_workers
from speciate.schema.runs import RunRecord
from speciate.storage.metrics.counters import WORK, read_counters
from tests.integration.faults.conftest import Service
from tests.integration.faults.test_faults import _EVALUATOR, _policy, _problem
from tests.support.http_server import wait_for
from tests.support.relay import Relay, relay

pytestmark = [pytest.mark.fault, pytest.mark.servers]

CLIENT_TIMEOUT_S = 5.5
"""Longer than the clients of Valkey wait for it."""
FROZEN_S = 2.0
HOUR_S = 3600.0
_SLOTS = 2
_CLOCK = """
import os, time
_seconds, _nanoseconds = time.time, time.time_ns
def _offset():
    with open(os.environ["CLOCK_OFFSET"]) as file:
        return int(file.read() or 0)
time.time = lambda: _seconds() + _offset()
time.time_ns = lambda: _nanoseconds() + _offset() * 10**9
"""


@dataclass
class SecondWorker:
    """An evaluate worker behind relays, with a wall clock of its own."""

    pid: int
    lines: tuple[Relay, Relay]
    clock: Path

    def jump(self, hours: float) -> None:
        """Set its clock to this many hours after the true time."""
        moved = self.clock.with_suffix(".new")
        moved.write_text(str(int(hours * HOUR_S)))
        moved.replace(self.clock)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze all its processes."""
        with frozen(self.pid):
            yield

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Swallow all its packets, with its connections open; afterwards its network is slow and splits messages."""
        for line in self.lines:
            line.silent.set()
        try:
            yield
        finally:
            for line in self.lines:
                line.delay_s, line.piece_bytes = 0.001, 1000
                line.silent.clear()


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Freeze a process and all below it."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        yield
    finally:
        for process in processes:
            if process.is_running():
                process.resume()


@pytest.fixture(scope="module")
def second(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecondWorker]:
    """A second evaluate worker."""
    here = tmp_path_factory.mktemp("second")
    (here / "sitecustomize.py").write_text(_CLOCK)
    (here / "clock").write_text("0")
    settings, processes = service.stack.settings, service.stack.processes
    assert settings.database_url is not None
    assert settings.redis_url is not None
    assert processes is not None
    database = sa.make_url(settings.database_url.get_secret_value())
    queue = urlsplit(settings.redis_url.get_secret_value())
    socket = f"{database.query['host']}/.s.PGSQL.{database.port or 5432}"
    with relay(socket) as to_database, relay(queue.path) as to_queue:
        first = service.stack._commands["evaluate"]
        through = database.set(host="127.0.0.1", port=to_database.port, query={})
        command = replace(
            first,
            name="second",
            argv=["second@%h" if word == "evaluate@%h" else word for word in first.argv],
            log_file=service.stack.log_of("second"),
            env={
                **first.env,
                "SPECIATE_DATABASE_URL": through.render_as_string(hide_password=False),
                "SPECIATE_REDIS_URL": f"redis://:{queue.password}@127.0.0.1:{to_queue.port}/0",
                "PYTHONPATH": f"{here}:{first.env.get('PYTHONPATH', '')}",
                "CLOCK_OFFSET": str(here / "clock"),
            },
        )
        pid = processes.start(command)
        wait_for(lambda: any(w.name.startswith("second@") for w in present_workers(service.stores.redis)))
        yield SecondWorker(pid, (to_database, to_queue), here / "clock")
        processes.signal("second", SIGKILL)


def _begin(service: Service, budget: int, problem: Problem | None = None) -> UUID:
    spec = RunSpec.model_validate({"budget": {"evaluations": budget}, "lanes": 6, "batch": 8, "strategy": "best_of_n"})
    return service.begin(problem or _problem(), _policy(), spec)


def _slow_problem() -> Problem:
    """Return a problem whose batches are in evaluation nearly all the time, seldom in a statement of the database."""
    changes = {"slug": "slower-toy", "evaluator": _EVALUATOR.replace("0.04", "0.2")}
    return _problem().model_copy(update=changes)


def _wait_for_end(service: Service, run_id: UUID) -> RunRecord:
    wait_for(lambda: service.stores.runs.get(run_id).state.ended)
    return service.stores.runs.get(run_id)


def _dropped(service: Service) -> float:
    """Return the number of results that were refused since their lease was lost."""
    series = read_counters(service.stores.redis)[WORK]
    return sum(one.counts[0] for one in series if one.labels == ("evaluate", "lost"))


def test_servers_freeze(service: Service) -> None:
    """The API answers what it can, viewers see every event once, and workers go on when the servers do."""
    budget, url = 96, service.stack.url
    ready = f"{url}/readyz"
    assert service.stack.servers is not None
    servers = service.stack.servers.poll()
    run_id = _begin(service, budget)
    seen: list[int] = []
    with Client(url) as client:
        viewer = threading.Thread(target=lambda: seen.extend(e.seq for e in client.runs.get(run_id).watch()))
        viewer.start()
        wait_for(lambda: service.stores.runs.get(run_id).spent.evaluations >= 8)
        with frozen(servers["valkey"].pid):
            # More probes than the API has threads must not keep other requests from being answered.
            probes = [threading.Thread(target=httpx.get, args=(ready,), kwargs={"timeout": 60}) for _ in range(20)]
            for probe in probes:
                probe.start()
            assert httpx.get(f"{url}/v1/runs", timeout=60).status_code == 200
            assert all(probe.is_alive() for probe in probes)
            time.sleep(CLIENT_TIMEOUT_S - FROZEN_S)
            with frozen(servers["postgres"].pid):
                assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
                time.sleep(FROZEN_S)
        for probe in probes:
            probe.join()
        assert httpx.get(ready, timeout=60).status_code == 200
        _wait_for_end(service, run_id)
        viewer.join(30)
    service.check_complete(run_id, budget)
    assert seen == list(range(1, service.stores.runs.get(run_id).last_event + 1))


@pytest.mark.parametrize("fault", ["frozen", "cut_off"])
def test_the_late_results_of_a_silent_worker_are_refused(service: Service, second: SecondWorker, fault: str) -> None:
    """Its clock jumps meanwhile, as that of a machine that was suspended."""
    budget = 96
    second.jump(6 if fault == "frozen" else -6)
    dropped = _dropped(service)
    run_id = _begin(service, budget, _slow_problem())

    def evaluated() -> set[UUID]:
        """Return units that are leased for a while: a worker that is cut off while it claims one never knows it."""
        claimed = service.leased(run_id, "evaluate")
        time.sleep(0.3)
        return claimed & service.leased(run_id, "evaluate")

    # More units than the first worker has slots: the second one holds some of them.
    wait_for(lambda: len(evaluated()) > _SLOTS)
    silence: Callable[[], object] = getattr(second, fault)
    with silence():  # type: ignore[attr-defined]
        service.seconds_until_done(service.leased(run_id, "evaluate"))
    second.jump(-6 if fault == "frozen" else 6)
    _wait_for_end(service, run_id)
    wait_for(lambda: _dropped(service) > dropped)
    service.check_complete(run_id, budget)
    again = service.query("SELECT count(*) FROM work WHERE run_id = :id AND attempt > 1", id=run_id)
    assert again[0][0] >= 1
