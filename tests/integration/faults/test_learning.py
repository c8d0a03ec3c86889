"""Killed learn workers and policy servers: no group is lost or used twice, and every booked version is on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from uuid import UUID

import pytest

from speciate.cli.local_service import LocalService
from speciate.domain.event import EventKind
from speciate.domain.run import RunSpec
from speciate.policies.bundled import bundled_policies
from speciate.policies.manifest import weights_digest
from speciate.runs.learning import LearningState
from speciate.settings import Settings
from speciate.storage.stores import open_stores
from speciate.training.tasks import GENERATED, Split
from tests.integration.faults.conftest import LEASE_S, Service

pytestmark = [pytest.mark.fault, pytest.mark.servers]

BUDGET = 240


@pytest.fixture(scope="module")
def learning_service() -> Iterator[Service]:
    pytest.importorskip("torch")
    home = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    home.chmod(0o711)
    settings = Settings(data_dir=home / "data", port=0, lease_s=LEASE_S, evaluate_slots=1, generate_slots=2)
    with LocalService(settings, learns=True) as stack:
        stack.ready_timeout_s = 600.0
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        yield Service(stack, stores, limit_s=600.0)  # a learn worker takes long to start
        stores.close()
    shutil.rmtree(home)


def _state(service: Service, run_id: UUID) -> LearningState:
    ((stored,),) = service.query("SELECT learning FROM run_progress WHERE run_id = :id", id=run_id)
    return LearningState.model_validate(stored)


def test_killed_workers_and_servers_lose_no_group(learning_service: Service) -> None:
    service, processes = learning_service, learning_service.stack.processes
    assert processes is not None
    (maze,) = GENERATED["maze"].problems(Split.TEST, 1)
    base = next(policy for policy in bundled_policies() if policy.slug == "maze-base")
    spec = RunSpec.model_validate(
        {
            "budget": {"evaluations": BUDGET},
            "lanes": 2,
            "samples_per_prompt": 8,
            "strategy": "best_of_n",
            "learning": {"groups": 2},
        }
    )
    run_id = service.begin(maze, base, spec)
    for step, part in enumerate(("learn", "policies"), start=1):
        # Learn workers are killed in a step, whose unit another one takes over; servers at any time.
        service.wait(
            run_id,
            lambda run, n=step, p=part: (
                run.state.ended  # type: ignore[misc]
                or (_state(service, run_id).step >= n and (p == "policies" or bool(service.leased(run_id, "learn"))))
            ),
        )
        processes.signal(part, SIGKILL)
        service.wait(run_id, lambda run: run.state.value != "paused" or _resume(service, run_id))
    service.wait(run_id, lambda run: run.state.ended or (run.state.value == "paused" and _resume(service, run_id)))
    service.check_complete(run_id, BUDGET)
    _check_books(service, run_id)


def _resume(service: Service, run_id: UUID) -> bool:
    """Resume a run that waits for its policy server, as an operator does."""
    service.stores.signals.committed(service.stores.runs.resume(run_id))
    return False


def _check_books(service: Service, run_id: UUID) -> None:
    state = _state(service, run_id)
    steps = [e for e in service.stores.queries.events(run_id, limit=5000) if e.kind == EventKind.LEARNING_STEP]
    assert len(steps) == state.step >= 3
    used = [tuple(group) for event in steps for group in event.data["groups"]]  # type: ignore[union-attr,arg-type]
    assert max(Counter(used).values()) == 1
    assert (len(used), state.busy, state.ended) == (state.used, False, None)
    assert state.seen == state.used + state.flat + state.stale + state.dropped + len(state.waiting)
    # Completions of a prompt are a group wherever they were written.
    counted = "SELECT count(DISTINCT (batch, prompt_digest, seed)) FROM rollouts WHERE run_id = :id"
    ((prompts,),) = service.query(counted, id=run_id)
    assert prompts == state.seen
    for event in steps:
        policy = service.stores.catalog.policy(str(event.data["version"])).definition
        assert policy.lineage is not None
        assert (policy.lineage.step, policy.lineage.base) == (event.data["step"], "maze-base@1")
        folder = service.stack.settings.checkpoints / (policy.model or "")
        assert weights_digest(folder) == policy.checkpoint_digest
    ((wrote,),) = service.query("SELECT count(DISTINCT policy_id) FROM candidates WHERE run_id = :id", id=run_id)
    assert wrote > 2, "later candidates name the versions that wrote them"
