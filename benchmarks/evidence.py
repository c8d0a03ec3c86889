"""Runs made for evidence: through the use cases of the workers, in one process, so that thousands take minutes.

Only queue, database and HTTP are missing. Every run is written to a file as it ends, and is not made again when the
file holds it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Final
from unittest import mock
from uuid import uuid4

import numpy as np
from rich.progress import track
from tokenizers import Tokenizer

from benchmarks.parts import CONSOLE
from evaluators.evaluator_factory import open_evaluator
from experiments.generation import generate
from speciate.domain.budget import Budget
from speciate.domain.candidate import Evaluation
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.rollout import Completion
from speciate.domain.run import RunSpec
from speciate.inference.engine import Engine
from speciate.policies import build_client
from speciate.policies.bundled import checkpoints
from speciate.policies.manifest import policy_of
from speciate.ports.evaluator import EvaluatorClient
from speciate.ports.policy import PolicyClient, SampleRequest, SampleResult
from speciate.ports.work import RunContext
from speciate.problems.loader import bundled, load_problem
from speciate.runs import loop
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.training.tasks import GENERATED, Split
from tests.support.memory_run import MemoryRun
from tests.support.memory_store import MemoryWorkStore

MUTATOR: Final = "program_mutator"
MARKS: Final = 20
"""Places of a run's budget, evenly spaced, at which its coverage is kept."""
_WEIGHTINGS: Final = 256


@dataclass(frozen=True, slots=True)
class Job:
    """One run to be made.

    Attributes:
        problem: Name of a bundled problem, or ``task:number`` for one of a task's test split.
        proposer: Name of a bundled checkpoint, or ``program_mutator``.
        mutator: The same, for the changes.
        strategy: Name of the strategy.
        budget: Evaluations.
        seed: Seed of the run.
        options: Options of the strategy that are not its defaults, as JSON.
        target_cells: False for archives and parents of the strategy alone.
    """

    problem: str
    proposer: str
    mutator: str
    strategy: str
    budget: int
    seed: int
    options: str = "{}"
    target_cells: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """Results of a run.

    Attributes:
        reached: For each of the problem's targets the evaluation that met it first, or None.
        coverage: E_w of the best wᵀr so far, w ~ Dir(1), rewards scaled by their declared ranges; shape (``MARKS``,).
        tokens: Tokens spent.
        repeated: Candidates whose program the run had met before.
        kept: For each of the problem's targets, whether the archive holds a candidate that meets it in the end.
    """

    reached: list[int | None]
    coverage: list[float]
    tokens: int
    repeated: int
    kept: list[bool] = field(default_factory=list)


def gather(jobs: Sequence[Job], keep: Path, workers: int, what: str) -> list[Found]:
    """Make the runs that are not there yet, on several processes; return what all of them found, in order.

    Args:
        jobs: The runs.
        keep: File with a line for each run that was made.
        workers: Processes.
        what: Words for the progress bar.
    """
    known: dict[Job, Found] = {}
    if keep.is_file():
        for line in keep.read_text("utf-8").splitlines():
            row = json.loads(line)
            known[Job(**row["job"])] = Found(**row["found"])
    missing = [job for job in jobs if job not in known]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of the processes below: their threads would only be in each other's way
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool, keep.open("a", encoding="utf-8") as file:
        made = zip(missing, pool.map(make, missing, chunksize=2), strict=True)
        for job, found in track(made, what, len(missing), console=CONSOLE):
            known[job] = found
            file.write(json.dumps({"job": asdict(job), "found": asdict(found)}) + "\n")
            file.flush()
    return [known[job] for job in jobs]


def make(job: Job) -> Found:
    """Make a run from its beginning to its end."""
    problem = _problem(job.problem)
    spec = RunSpec(
        strategy=job.strategy,
        strategy_options=json.loads(job.options),
        budget=Budget(evaluations=job.budget),
        seed=job.seed,
        lanes=1,
    )
    proposer, mutator = _policy(job.proposer), _policy(job.mutator)
    context = RunContext(uuid4(), problem, proposer, uuid4(), spec, mutator, uuid4())
    store, signals = MemoryWorkStore(), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    with nullcontext() if job.target_cells else _strategy_alone():
        drain(WorkExecutor(store, signals, _evaluator(job.problem), _client), signals)
    run = store.runs[context.run_id]
    if run.progress.evaluations != job.budget:
        raise RuntimeError(f"{job} ended after {run.progress.evaluations} evaluations: {run.progress}")
    return _found(run, problem, job.budget)


@contextmanager
def _strategy_alone() -> Iterator[None]:
    """Leave the target cells out, as before they existed."""
    with (
        mock.patch.object(loop, "place_candidates", lambda strategy, view, found: strategy.place(view, found)),
        mock.patch.object(loop, "select_parents", lambda strategy, view, rng: strategy.select(view, rng)),
    ):
        yield


def _found(run: MemoryRun, problem: Problem, budget: int) -> Found:
    outcomes = [run.candidates[number] for number in sorted(run.candidates)]
    reached = [
        next((i + 1 for i, outcome in enumerate(outcomes) if outcome.targets >> target & 1), None)
        for target in range(len(problem.targets))
    ]
    space = problem.space
    drawn = np.random.default_rng(0).dirichlet(np.ones(len(space.selected)), _WEIGHTINGS)
    best = np.zeros((len(outcomes), _WEIGHTINGS))
    for i, outcome in enumerate(outcomes):
        rewards = outcome.evaluation.rewards
        if rewards is not None and space.violation([rewards])[0] <= 0:
            best[i] = drawn @ space.normalise([rewards])[0]
    curve = np.maximum.accumulate(best).mean(axis=1)
    marks = [curve[min(len(curve), budget * (i + 1) // MARKS) - 1] for i in range(MARKS)]
    held = [run.candidates[number].targets for number in {elite.number for elite in run.elites.values()}]
    kept = [any(targets >> i & 1 for targets in held) for i in range(len(problem.targets))]
    return Found(reached, [float(mark) for mark in marks], run.progress.tokens, run.progress.duplicates, kept)


class _Local(PolicyClient):
    """A checkpoint asked in this process, by the engine of the inference server."""

    def __init__(self, policy: Policy, folder: Path) -> None:
        self._policy = policy
        self._engine = Engine.load(folder)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def token_ceiling(self, request: SampleRequest) -> int:
        return len(self._prompt(request)) + request.n * self._policy.tokens_for(request.role)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        results: dict[int, SampleResult] = {}
        for kind in dict.fromkeys((request.n, request.role) for request in requests):  # one draw for all that are alike
            alike = [i for i, request in enumerate(requests) if (request.n, request.role) == kind]
            prompts = [self._prompt(requests[i]) for i in alike]
            drawn = generate(
                self._engine,
                prompts,
                n=kind[0],
                max_tokens=self._policy.tokens_for(kind[1]),
                temperature=self._policy.sampling.temperature,
                seeds=[requests[i].seed for i in alike],
            )
            for i, prompt, found in zip(alike, prompts, drawn, strict=True):
                texts = [self._tokenizer.decode(list(one.token_ids), skip_special_tokens=True) for one in found]
                answers = zip(texts, found, strict=True)
                completions = tuple(Completion(text, len(one.token_ids)) for text, one in answers)
                results[i] = SampleResult(completions, len(prompt))
        return [results[i] for i in range(len(requests))]

    def _prompt(self, request: SampleRequest) -> list[int]:
        return list(self._tokenizer.encode(request.prompt.user, add_special_tokens=False).ids)

    def ping(self) -> str:
        return "in this process"


class _Computed(EvaluatorClient):
    """Scores answers to a task's problems as training does; a test holds that against the sandbox."""

    tier = "computed"

    def __init__(self, task: str) -> None:
        self._task = GENERATED[task]

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        (scores,) = self._task.score([(problem, programs)])
        return [Evaluation(rewards=found) for found in scores]


@cache
def _problem(name: str) -> Problem:
    task, _, number = name.partition(":")
    if not number:
        return load_problem(bundled()[name])
    (problem,) = GENERATED[task].problems(Split.TEST, 1, start=int(number))
    return problem


@cache
def _policy(name: str) -> Policy:
    if name == MUTATOR:
        return Policy(slug="program-mutator", kind=MUTATOR)
    return policy_of(checkpoints()[name], name)


def _client(policy: Policy) -> PolicyClient:
    return _client_of(policy.slug)


@cache
def _client_of(slug: str) -> PolicyClient:
    return _Local(_policy(slug), checkpoints()[slug]) if slug in checkpoints() else build_client(_policy(MUTATOR))


@cache
def _evaluator(problem: str) -> EvaluatorClient:
    task, _, number = problem.partition(":")
    return _Computed(task) if number else _open_sandbox()


@cache
def _open_sandbox() -> EvaluatorClient:
    return open_evaluator()
