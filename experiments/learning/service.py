"""Searches in one process, with the code of the service: executor, ledger, policy server, client and learner.

The work store is the one in memory, on the same ledger as PostgreSQL's; the queue is a list; answers are scored as in
training, which tests hold equal to the sandbox. A campaign hands its learner on by the rule of the service (ADR 52).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final
from unittest import mock
from uuid import UUID

import uvicorn

from experiments.learning.plan import (
    ARMS,
    FRESH,
    FROZEN,
    FROZEN_SETS,
    GROUP,
    SETS,
    TASKS,
    TAUGHT,
    Job,
    Plan,
    positions,
    problem_at,
    shape_of,
)
from speciate.domain.candidate import Evaluation
from speciate.domain.learning import learned_slug
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.ids import uuid7
from speciate.inference.app import create_app
from speciate.policies import build_client
from speciate.policies.bundled import bundled_policies, checkpoints
from speciate.policies.embedded import ADDRESS_VARIABLE
from speciate.ports.policy import PolicyClient
from speciate.ports.work import LearnedVersion, RunContext
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.learning import LearningState, receive_learner
from speciate.runs.progress import RunChange
from speciate.training.learner import TorchLearner
from speciate.training.tasks import GENERATED
from tests.support.memory_run import MemoryRun
from tests.support.memory_store import MemoryWorkStore

_LANES: Final = 2
_NEVER_S: Final = 1e9
_MOST_CLIENTS: Final = 8


@dataclass(frozen=True)
class Found:
    """Result of a search.

    Attributes:
        unlocked: Number of the answer that unlocked the problem; None if none did.
        answers: Answers spent.
        seconds: Processor seconds of sampling, scoring, booking and learning.
        state: Progress of learning.
    """

    unlocked: int | None
    answers: int
    seconds: float
    state: LearningState


class LocalService:
    """A policy server with the searches that use it.

    Args:
        folder: Folder of the learned checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clients: dict[str, PolicyClient] = {}

    def search(self, job: Job, answers: int, version: LearnedVersion | None = None) -> Found:
        """Search the problem of a job until it is unlocked.

        Args:
            job: Task, position, arm and seed.
            answers: Budget.
            version: Version of the policy to use, which does not learn.
        """
        policy, estimator = (policy_of(job.task, job.arm), ARMS[job.arm]) if version is None else (version.policy, None)
        found = self._execute(MemoryWorkStore(lease_s=_NEVER_S), _context(job, policy, estimator, answers))
        self._forget(keep=None if version is None else version.policy.model)
        return found

    def campaign(self, job: Job, plan: Plan) -> dict[str, Any]:
        """Search the problems of a campaign in turn with a shared learner, then fresh ones with its last version.

        Returns:
            Processor seconds and steps of the campaign, and for each fresh problem the answer that unlocked it.
        """
        taught = islice(positions(job.task, TAUGHT), plan.taught if ARMS[job.arm] is not None else 0)
        store, learner, policy = (
            MemoryWorkStore(lease_s=_NEVER_S),
            TorchLearner(self._folder),
            policy_of(job.task, job.arm),
        )
        slug, last, seconds, ended = learned_slug(policy.slug, uuid7().hex), None, 0.0, None
        for number in taught:
            context = _context(replace(job, number=number), policy, ARMS[job.arm], plan.turn)
            store.add(context)
            _hand_on(store.runs[context.run_id], last, slug)
            last = store.runs[context.run_id]
            found = self._execute(store, context, learner)
            seconds, ended = seconds + found.seconds, found.state.ended
        version = None if last is None else last.learned
        fresh = [
            replace(job, number=number, arm=_frozen_of(job.arm))
            for number in islice(positions(job.task, FRESH), plan.fresh)
        ]
        return {
            "steps": 0 if version is None else version.step,
            "seconds": round(seconds, 3),
            "ended": ended,
            "fresh": [self.search(each, plan.tries, version).unlocked for each in fresh],
        }

    def warm_up(self) -> None:
        """Load what the first search and the first step load: no job pays for it. The problems are in no table."""
        for task in TASKS:
            self.search(Job("warm-up", task, "grpo", 0, 1_000_000), 128)

    def _forget(self, keep: str | None) -> None:
        """Delete the learned checkpoints but one."""
        for path in self._folder.iterdir():
            if path.name != keep:
                shutil.rmtree(path)

    def _execute(self, store: MemoryWorkStore, context: RunContext, learner: TorchLearner | None = None) -> Found:
        queue, own = LocalQueue(), learner or TorchLearner(self._folder)
        score = _Computed(GENERATED[_task_of(context.problem)])
        executor = WorkExecutor(store, queue, score, self._client, learner_for=lambda: own)
        if context.run_id not in store.runs:
            store.add(context)
        started = time.process_time()
        queue.committed(store.start(context.run_id))
        drain(executor, queue)
        seconds = time.process_time() - started
        run = store.runs[context.run_id]
        if not run.progress.state.ended:
            raise RuntimeError(f"the search of {context.problem.slug} is {run.progress.state}: {run.progress.reason}")
        unlocked = min((number for number, each in run.candidates.items() if each.targets & 1), default=None)
        state = LearningState.model_validate(run.progress.learning)
        return Found(unlocked, run.progress.evaluations, seconds, state)

    def _client(self, policy: Policy) -> PolicyClient:
        found = self._clients.pop(policy.digest, None) or build_client(policy)
        self._clients[policy.digest] = found
        if len(self._clients) > _MOST_CLIENTS:
            self._drop(next(iter(self._clients)))
        return found

    def close(self) -> None:
        """Close the connections to the policy server."""
        for digest in list(self._clients):
            self._drop(digest)

    def _drop(self, digest: str) -> None:
        client = self._clients.pop(digest)
        if isinstance(client, AbstractContextManager):
            client.__exit__(None, None, None)


@contextmanager
def local_service() -> Iterator[LocalService]:
    """Serve the bundled policies and their learned versions in a thread until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        bases = {name: checkpoints()[name] for name in TASKS.values()}
        app = create_app(bases, learned=Path(folder))
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, name="policies")
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            address = {ADDRESS_VARIABLE: f"http://127.0.0.1:{port}/v1"}
            with mock.patch.dict(os.environ, address), closing(LocalService(Path(folder))) as service:
                yield service
        finally:
            server.should_exit = True
            thread.join()


class _Computed:
    """Scores answers as training does."""

    tier = "computed"

    def __init__(self, task: Any) -> None:
        self._task = task

    def evaluate(self, problem: Problem, programs: Sequence[str], **_: object) -> list[Evaluation]:
        (scores,) = self._task.score([(problem, programs)])
        return [Evaluation(rewards=rewards) for rewards in scores]


def policy_of(task: str, arm: str) -> Policy:
    """Return the policy of an arm: the bundled base, with three answers per completion for sets."""
    base = next(policy for policy in bundled_policies() if policy.slug == TASKS[task])
    answers = shape_of(arm).answers
    sampling = base.sampling.model_copy(update={"max_tokens": answers * base.sampling.max_tokens})
    return base.model_copy(update={"answers_per_rollout": answers, "sampling": sampling})


def _frozen_of(arm: str) -> str:
    return FROZEN_SETS if arm in SETS else FROZEN


def _task_of(problem: Problem) -> str:
    return problem.slug.split("-", maxsplit=1)[0]


def _context(job: Job, policy: Policy, estimator: str | None, answers: int) -> RunContext:
    shape = shape_of(job.arm)
    size = GROUP * shape.answers
    spec = {
        "budget": {"evaluations": answers},
        "seed": job.seed,
        "strategy": "best_of_n",
        "samples_per_prompt": size,
        "batch": shape.prompts * size,
        "lanes": _LANES,
        "stop_on_unlock": True,
        "learning": None if estimator is None else {"estimator": estimator, "groups": shape.groups},
    }
    problem = problem_at(job.task, job.number)
    return RunContext(uuid7(), problem, policy, UUID(int=1), RunSpec.model_validate(spec), proposer_version=1)


def _hand_on(run: MemoryRun, before: MemoryRun | None, slug: str) -> None:
    """Let a run begin with the learner of the run before it, as the service does between two turns."""
    change = RunChange(run.progress)
    last, owner = (None, None) if before is None else (before.progress, before.context.run_id)
    receive_learner(change, slug, "campaign", last, owner)
    run.events.extend(change.events)
    run.progress.events = len(run.events)
    run.learned = None if before is None else before.learned
