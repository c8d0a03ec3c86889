"""Every kind of process is restarted while a run goes on and clients ask: nothing waits for a lease, nothing fails."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from benchmarks.chaos.fleet import SECOND, Fleet
from benchmarks.chaos.round_robin import RoundRobin
from speciate.client import Client
from speciate.domain.errors import UnavailableError
from speciate.domain.run import RunSpec
from speciate.settings import Settings
from speciate.storage.stores import open_stores
from tests.integration.faults.conftest import Service
from tests.integration.faults.test_faults import _policy, _problem

pytestmark = [pytest.mark.fault, pytest.mark.servers]

LEASE_S = 120.0  # far longer than the test, so that waiting for an expired lease is noticed
BUDGET = 240


@pytest.fixture(scope="module")
def fleet() -> Iterator[Service]:
    home = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    home.chmod(0o711)
    settings = Settings(data_dir=home / "data", port=0, lease_s=LEASE_S, evaluate_slots=2, generate_slots=4)
    with Fleet(settings, drain_s=0.3) as stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        yield Service(stack, stores)
        stores.close()
    shutil.rmtree(home)


@dataclass
class _Caller:
    """Send requests to the replicas without a pause until stopped."""

    urls: list[str]
    run_id: UUID
    failures: list[str] = field(default_factory=list)
    asked: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        client = RoundRobin(self.urls)
        paths = [f"/v1/runs/{self.run_id}", "/v1/runs", f"/v1/runs/{self.run_id}/candidates", "/healthz"]
        while not self.stopping.is_set():
            path = paths[self.asked % len(paths)]
            try:
                answer = client.ask("GET", path)
                if answer.status_code != 200:
                    self.failures.append(f"{path}: {answer.status_code} {answer.text}")
            except httpx.TransportError as error:
                self.failures.append(f"{path}: {error!r}")
            self.asked += 1
            self.stopping.wait(0.01)
        client.close()


def _follow(urls: list[str], run_id: UUID, seen: list[int], stopping: threading.Event) -> None:
    """Watch a run, at the other replica whenever one is away for longer than a client waits."""
    for url in cycle(urls):
        try:
            with Client(url) as client:
                seen.extend(event.seq for event in client.runs.get(run_id).watch(after=seen[-1] if seen else 0))
        except UnavailableError:
            if not stopping.is_set():
                continue
        return


def test_every_process_restarts_while_runs_go_on(fleet: Service) -> None:
    stack = fleet.stack
    assert isinstance(stack, Fleet)
    urls = [f"http://127.0.0.1:{port}" for port in stack.ports.values()]
    runs, slowest = [_begin(fleet)], 0.0
    caller, seen = _Caller(urls, runs[0]), list[int]()
    follower = threading.Thread(target=_follow, args=(urls, runs[0], seen, caller.stopping))
    threads = [threading.Thread(target=caller.run), follower]
    for thread in threads:
        thread.start()
    try:
        for part in ("evaluate", "generate", "control", "api", SECOND, "evaluate"):
            while not (in_flight := fleet.leased(runs[-1], "evaluate")):
                if fleet.stores.runs.get(runs[-1]).state.ended:
                    runs.append(_begin(fleet))
                time.sleep(0.02)
            stack.restart(part)
            if part.startswith("api"):
                _wait_until_ready(urls)
            slowest = max(slowest, fleet.seconds_until_done(in_flight))
        for run_id in runs:
            fleet.wait_for_end(run_id)
        follower.join(30)
    finally:
        caller.stopping.set()
        for thread in threads:
            thread.join(30)
    for run_id in runs:
        fleet.check_complete(run_id, BUDGET)
    assert caller.failures == []
    assert caller.asked > 100
    assert seen == list(range(1, fleet.stores.runs.get(runs[0]).last_event + 1))
    # The processes' own start is in it, on a busy machine; a lease is not.
    assert slowest < LEASE_S / 2


def _begin(fleet: Service) -> UUID:
    spec = RunSpec.model_validate({"budget": {"evaluations": BUDGET}, "lanes": 4, "strategy": "best_of_n"})
    return fleet.begin(_problem(), _policy(), spec)


def _wait_until_ready(urls: list[str]) -> None:
    deadline = time.monotonic() + 60
    for url in urls:
        while True:
            try:
                with Client(url) as client:
                    client.ready()
            except UnavailableError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                break
