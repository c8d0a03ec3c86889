"""Run Speciate on one problem: ``speciate up`` in a process of its own, driven through its API."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from experiments.peers import measure
from experiments.peers.declaration import EVALUATIONS, IMPOSSIBLE, KILL_AT, RUN_LIMIT_S, WORKERS, Task
from experiments.peers.drivers.scoring import score
from experiments.peers.endpoint import Endpoint
from experiments.peers.peer_runs import ends_of
from experiments.peers.result import Result, costs, gains_of
from speciate.client import Client, RunHandle
from speciate.domain.errors import SpeciateError
from speciate.domain.policy import Policy
from speciate.problems.loader import load_problem

_READY_S: Final = 240.0


class Service:
    """A ``speciate up`` with a database of its own; a context manager."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="speciate-peers-"))
        self._home.chmod(0o711)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.tree: measure.Tree
        self.client: Client

    def __enter__(self) -> Service:
        """Start it and wait until it is ready."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it and remove its data."""
        self.tree.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.tree.process.wait(60)
        self.tree.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def start(self) -> None:
        """Start the service, on the data of an earlier one if there is any."""
        command = [
            str(Path(sys.executable).with_name("speciate")), "up", "--port", str(self._port),
            "--data-dir", str(self._home / "data"), "--evaluate-slots", str(WORKERS),
        ]  # fmt: skip
        # All systems run with the same priority: by default our workers stand back behind everything else.
        environment = os.environ | {"SPECIATE_WORK_NICE": "0"}
        self.tree = measure.spawn(command, environment, self._home / "output.log", limited=False)
        self.client = Client(f"http://127.0.0.1:{self._port}")
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            with suppress(SpeciateError):
                self.client.ready()
                return
            if self.tree.process.poll() is not None:
                break
            time.sleep(0.5)
        raise SystemExit(f"speciate up did not start:\n{(self._home / 'output.log').read_text()[-2000:]}")


def run_speciate(task: Task, service: Service, endpoint: Endpoint) -> Result:
    """Run a search through the service and return the scores of its candidates in order."""
    problem = load_problem(task.folder)
    service.client.problems.add(problem)
    policy = Policy.model_validate({
        "slug": f"peer-{task.kind}-{task.problem}-{task.seed}", "kind": "openai_compatible",
        "base_url": endpoint.url_for(task), "model": endpoint.model, "prompt_format": "chat",
        "sampling": {"max_tokens": 8192, "temperature": 0.8},
    })  # fmt: skip
    added = service.client.policies.add(policy)
    run = service.client.runs.create(task.problem, added.id, budget=EVALUATIONS, seed=task.seed)
    samples = measure.watch(
        service.tree, lambda: _evaluations(run), lambda: run.record.state.ended, RUN_LIMIT_S,
        KILL_AT if task.kind == "kill" else None,
    )  # fmt: skip
    finished, orphans, survivors = run.record.state.ended, 0, None
    if task.kind == "kill":
        orphans = measure.kill_main(service.tree)
        service.start()
        # The run goes on by itself once the service is back, so there may be more of them already.
        survivors = min(len(_rewards(service.client.runs.get(run.id))), samples[-1].evaluations)
    rewards = _rewards(service.client.runs.get(run.id))
    ends = ends_of(problem)
    scores = [0.0 if each is None else score(each, ends) for each in rewards][:EVALUATIONS]
    seconds, processor_s, halves, memory = costs(samples)
    return Result(
        task.system, task.problem, task.seed, task.kind, len(scores), gains_of(scores), seconds, processor_s, halves,
        memory, finished,
        sum(value >= IMPOSSIBLE for value in scores), endpoint.sent_forged(task), survivors, samples[-1].evaluations,
        orphans, endpoint.tokens(task), (run.record.reason or "") if not finished else "",
    )  # fmt: skip


def _evaluations(run: RunHandle) -> int:
    with suppress(SpeciateError):
        return run.refresh().spent.evaluations
    return 0


def _rewards(run: RunHandle) -> list[dict[str, Any] | None]:
    """Return the rewards of all candidates by number; None for a failed one."""
    return [each.rewards for each in sorted(run.candidates(), key=lambda each: each.number)]
