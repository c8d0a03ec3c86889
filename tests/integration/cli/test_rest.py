"""A service that rests after work has the processes, the sessions and about the memory that it had before."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from speciate.cli.local_service import LocalService
from speciate.cli.problems.importing import import_task
from speciate.client import Client
from speciate.policies.bundled import bundled_policies
from speciate.settings import Settings

pytestmark = [pytest.mark.servers, pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")]

GROWTH = 1.2
RUNS = 24
WAIT_S = 120.0
MODELS = ("maze-grpo", "maze-vpo")
SCRIPT = """
def evaluate(candidate, context):
    return {"x": float(candidate.call("f", 3).unwrap())}
"""
PROBLEMS = (
    {},
    {"preload": ["numpy", "scipy.optimize"]},
    {"data_files": {"points.txt": "1 2 3"}},
    {"limits": {"cores": 2}},
    {"data_files": {"points.txt": "4 5 6"}, "preload": []},
)


@pytest.fixture
def stack(open_dir: Path) -> Iterator[LocalService]:
    settings = Settings(data_dir=open_dir / "data", port=0, evaluate_slots=2, generate_slots=4, rest_s=3)
    with LocalService(settings) as stack:
        for _ in stack.start():
            pass
        yield stack


def _processes(stack: LocalService) -> list[psutil.Process]:
    assert stack.processes is not None
    assert stack.servers is not None
    guards = [psutil.Process(pid) for pid in (stack.processes.guard_pid, stack.servers.guard_pid)]
    return [process for guard in guards for process in (guard, *guard.children(recursive=True))]


def _titles(processes: list[psutil.Process]) -> Counter[str]:
    """Return the command lines without sessions of PostgreSQL, whose number differs with the moment."""
    titles: Counter[str] = Counter()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            titles[" ".join(process.cmdline()).strip()] += 1
    return Counter({title: number for title, number in titles.items() if not title.startswith("postgres:")})


def _of_living(processes: list[psutil.Process], read: Callable[[psutil.Process], float]) -> float:
    """Return the sum over processes, of which some may end meanwhile."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a zombie is one, too
            total += read(process)
    return total


def _sessions(processes: list[psutil.Process]) -> int:
    return int(_of_living(processes, lambda each: "postgres: speciate: speciate" in " ".join(each.cmdline())))


def _search(client: Client, number: int) -> None:
    """Complete a number of runs, of which some are in progress together, over all problems and policies."""
    runs = []
    for i in range(number):
        problem, policy = f"rest-{i % len(PROBLEMS)}", "mutator"
        if i % 3 == 0:
            problem, policy = "maze-test-0", MODELS[i % len(MODELS)]
        runs.append(client.runs.create(problem, policy, budget=6, seed=i))
    deadline = time.monotonic() + WAIT_S
    while not all(run.refresh().state.ended for run in runs):
        assert time.monotonic() < deadline, [run.state for run in runs]
        time.sleep(0.2)


def test_memory_processes_and_sessions_return(stack: LocalService) -> None:
    with Client(stack.url) as client:
        for policy in bundled_policies():
            client.policies.add(policy.model_dump(mode="json"))
        import_task(client, "maze", "test", 1, into="mazes")
        for i, parts in enumerate(PROBLEMS):
            definition = {
                "slug": f"rest-{i}",
                "title": "Larger numbers",
                "kind": "evaluator",
                "objectives": [{"name": "x", "range": [0, 100]}],
                "targets": [{"name": "all", "rule": "x >= 100", "unlock": True}],
                "seed_program": "# EVOLVE-BLOCK-START\ndef f(n):\n    return n + 0.5\n# EVOLVE-BLOCK-END\n",
                "evaluator": SCRIPT,
            }
            client.problems.add(definition | parts)
        before = _processes(stack)
        megabytes, titles = _megabytes(before), _titles(before)
        _search(client, RUNS)
        assert len(_processes(stack)) > len(before), "the work started processes"
        at_work = max(_sessions(_processes(stack)), 1)
        deadline = time.monotonic() + WAIT_S
        while True:
            now = _processes(stack)
            if _titles(now).total() <= titles.total() and _megabytes(now) <= GROWTH * megabytes:
                break
            assert time.monotonic() < deadline, (
                f"{megabytes:.0f} MB became {_megabytes(now):.0f} MB; before: {titles}; now: {_titles(now)}"
            )
            time.sleep(1)
        assert _sessions(now) < at_work
        _search(client, len(PROBLEMS))


def _megabytes(processes: list[psutil.Process]) -> float:
    return _of_living(processes, lambda each: each.memory_full_info().pss) / 1e6
