"""Runs that learn: every group is used once, lanes wait for a step, and a failed step ends learning, not the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest

from speciate.domain.errors import InvalidInputError, LearningError, ReplayError, UnavailableError
from speciate.domain.event import EventKind
from speciate.domain.policy import Policy, Probe, PromptStyle
from speciate.domain.problem import Problem
from speciate.domain.rollout import Completion
from speciate.domain.run import RunSpec, RunState
from speciate.ports.learner import LearnedCheckpoint, LearningTask
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.ports.work import RunContext, WorkKind
from speciate.runs import ledger
from speciate.runs.checks import check_run
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.learning import LearningState
from speciate.runs.replay import replay
from speciate.schema.policies import PolicyVersion, RunPolicies
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec

MEASURES = dict.fromkeys(("reward", "best", "entropy", "kl", "gap", "age"), 0.1)
PROBE = Probe(prompts=("x",), trained=(({"a": -0.1},),), base=(({"a": -1.0},),))
BASE = Policy(slug="base", kind="embedded", model="base", probe=PROBE)


def learning_spec(evaluations: int, *, batch: int = 16, **learning: object) -> RunSpec:
    return toy_spec(evaluations, batch=batch, samples_per_prompt=8, lanes=2, learning={"groups": 2, **learning})


@dataclass
class Varied:
    """Answers with different programs; with ``same``, with one."""

    same: bool = False
    asked: list[str] = field(default_factory=list)

    def token_ceiling(self, request: SampleRequest) -> int:
        return 40

    def sample(self, requests: list[SampleRequest]) -> list[SampleResult]:
        def answer(request: SampleRequest, i: int) -> Completion:
            x = 0.5 if self.same else (request.seed % 97 * 8 + i) / 1000
            return Completion(f"```python\nx = {x}\ny = 5\n```", 2, logprobs=(-0.5, -1.0), token_ids=(1, i + 2))

        return [SampleResult(tuple(answer(r, i) for i in range(r.n)), 3) for r in requests]

    def ping(self) -> str:
        return "ready"


@dataclass
class FakeLearner:
    """Records its tasks; raises the errors of ``failures`` by number of the call."""

    failures: Mapping[int, Exception] = field(default_factory=dict)
    tasks: list[LearningTask] = field(default_factory=list)

    def step(self, task: LearningTask) -> LearnedCheckpoint:
        self.tasks.append(task)
        assert task.base.digest, "the learner reads it, and the version gets a digest of its own"
        if (error := self.failures.get(len(self.tasks))) is not None:
            raise error
        return LearnedCheckpoint(f"v{task.step + 1}", f"{task.step + 1:064x}", {"check": False}, 0.5, MEASURES)


@dataclass
class Session:
    """A run in memory that learns."""

    spec: RunSpec
    learner: FakeLearner = field(default_factory=FakeLearner)
    client: Varied = field(default_factory=Varied)
    policies: list[str] = field(default_factory=list)
    problem: Problem = field(default_factory=toy_problem)
    base: Policy = BASE

    def __post_init__(self) -> None:
        self.run = UUID(int=1)
        self.store, self.signals = MemoryWorkStore(ticking_clock()), LocalQueue()
        self.store.add(RunContext(self.run, self.problem, self.base, UUID(int=2), self.spec, proposer_version=3))
        self.signals.committed(self.store.start(self.run))

    def go(self) -> LearningState:
        def client_for(policy: Policy) -> Varied:
            self.policies.append(policy.slug if policy.lineage is None else f"{policy.slug}@{policy.lineage.step}")
            return self.client

        executor = WorkExecutor(self.store, self.signals, ToyEvaluator(), client_for, learner_for=lambda: self.learner)
        drain(executor, self.signals)
        return self.state

    @property
    def state(self) -> LearningState:
        return LearningState.model_validate(self.progress.learning)

    @property
    def progress(self) -> Any:
        return self.store.runs[self.run].progress

    def used(self) -> list[tuple[int, int]]:
        events = [e for e in self.store.events(self.run) if e.kind is EventKind.LEARNING_STEP]
        return [(batch, first) for event in events for batch, first in event.data["groups"]]  # type: ignore[union-attr,misc]

    def check_books(self) -> None:
        """Every group is in one place."""
        state = self.state
        units = [u for u in self.store.runs[self.run].units.values() if u.new.kind is WorkKind.LEARN]
        inside = sum(len(u.new.payload["groups"]) for u in units if u.state in {"ready", "leased"})
        assert state.seen == state.used + state.flat + state.stale + state.dropped + len(state.waiting) + inside
        assert len(self.used()) == state.used
        assert max(Counter(self.used()).values(), default=1) == 1
        assert self.progress.reserved_evaluations == self.progress.reserved_tokens == 0


def test_every_group_is_used_once_and_the_next_batch_adopts_the_version() -> None:
    session = Session(learning_spec(321))
    state = session.go()
    assert session.progress.state is RunState.COMPLETED
    assert state.seen == 40
    assert state.step == len(session.learner.tasks) > 10
    session.check_books()
    # The name of a version is that of the base with the end of the run's id; batches between two steps share one.
    names = list(dict.fromkeys(session.policies))
    assert names[0] == "base"
    assert set(names[1:]) <= {f"base-000000000001@{step}" for step in range(1, state.step + 1)}
    task = session.learner.tasks[1]
    assert task.parent.lineage is not None
    assert (task.parent.lineage.base, task.parent.lineage.parent, task.parent.lineage.step) == ("base@3", "base@3", 1)
    assert session.learner.tasks[2].parent.model == "v2"
    assert task.parent.probe is None, "its weights answer otherwise than those that the run began with"
    wrote = {c.proposal.version for c in session.store.runs[session.run].candidates.values()}
    assert len(wrote) > 5
    # A task holds what its completions earned: as many rewards as tokens were stored.
    (rollout, *_), k = session.learner.tasks[0].groups[0].rollouts, len(toy_problem().space.selected)
    assert len(rollout.token_ids) == len(rollout.logprobs) == 2
    assert [len(row) for row in rollout.rewards] == [k]


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_groups_are_never_older_than_allowed(staleness: int) -> None:
    session = Session(learning_spec(641, staleness=staleness))
    state = session.go()
    ages = [group.age for task in session.learner.tasks for group in task.groups]
    assert 0 <= min(ages) <= max(ages) <= staleness
    assert state.step > 5
    session.check_books()


def test_flat_groups_teach_nothing() -> None:
    session = Session(learning_spec(161), client=Varied(same=True))
    state = session.go()
    assert (state.flat, state.seen, state.step) == (20, 20, 0)
    assert not session.learner.tasks


def test_a_group_without_a_completion_beyond_kappa_is_dropped() -> None:
    spec = toy_spec(1 + 32 + 10, batch=32, samples_per_prompt=32, lanes=1, learning={"groups": 1, "kappa": 16})
    session = Session(spec)
    state = session.go()
    assert [len(group.rollouts) for task in session.learner.tasks for group in task.groups] == [32]
    assert (state.seen, state.dropped) == (2, 1)


def test_a_completion_whose_answers_are_cut_by_the_budget_is_left_out() -> None:
    class Sets(Varied):
        def sample(self, requests: list[SampleRequest]) -> list[SampleResult]:
            def answer(request: SampleRequest, i: int) -> Completion:
                x = (request.seed % 97 * 8 + i) / 1000
                blocks = "\n---\n".join(f"```python\nx = {x + s / 10000}\ny = 5\n```" for s in range(3))
                return Completion(blocks, 2, logprobs=(-0.5, -1.0), token_ids=(1, i + 2))

            return [SampleResult(tuple(answer(r, i) for i in range(r.n)), 3) for r in requests]

    spec = toy_spec(1 + 32, batch=48, samples_per_prompt=48, lanes=1, learning={"groups": 1, "estimator": "multi_rlvr"})
    session = Session(spec, client=Sets(), base=BASE.model_copy(update={"answers_per_rollout": 3}))
    session.go()
    ((group,),) = [task.groups for task in session.learner.tasks]
    assert len(group.rollouts) == 10, "two answers of the eleventh are evaluated"
    assert all(any(row) for rollout in group.rollouts for row in rollout.rewards)


def test_rounding_errors_are_flat_and_small_rewards_are_not() -> None:
    class Near(Varied):
        def __init__(self, *answers: str) -> None:
            super().__init__()
            self.answers = answers

        def sample(self, requests: list[SampleRequest]) -> list[SampleResult]:
            texts = [f"```python\nx = {self.answers[i % 2]}\ny = 10\n# {i}\n```" for i in range(8)]
            return [
                SampleResult(tuple(Completion(t, 2, logprobs=(-1.0, -1.0), token_ids=(1, 2)) for t in texts[: r.n]), 3)
                for r in requests
            ]

    rounded = Session(learning_spec(161), client=Near("0.3", "0.30000000000000004")).go()
    assert (rounded.flat, rounded.step) == (rounded.seen, 0)
    small = Session(learning_spec(161), client=Near("1e-9", "2e-9")).go()
    assert small.step > 0


def test_rewards_beyond_an_estimated_range_still_teach() -> None:
    x, y = toy_problem().objectives
    narrow = x.model_copy(update={"range": (0.0, 1e-4), "estimated": True})  # nearly all answers lie above it
    session = Session(learning_spec(161), problem=toy_problem().model_copy(update={"objectives": (narrow, y)}))
    state = session.go()
    assert (state.flat, state.step > 0) == (0, True)
    for task in session.learner.tasks:
        earned = [rollout.rewards[0][0] for group in task.groups for rollout in group.rollouts]
        assert max(earned) == pytest.approx(1.0)
        assert len({*earned}) == len(earned), "none is clipped"


def test_failures_beside_the_smallest_reward_are_flat() -> None:
    class Hopeless(Varied):
        def sample(self, requests: list[SampleRequest]) -> list[SampleResult]:
            worst = "```python\nx = 0\ny = 10\n```"
            texts = [worst if i % 2 else f"```python\nx = {i}\n```" for i in range(8)]
            return [
                SampleResult(tuple(Completion(t, 2, logprobs=(-1.0, -1.0), token_ids=(1, 2)) for t in texts[: r.n]), 3)
                for r in requests
            ]

    session = Session(learning_spec(161), client=Hopeless())
    state = session.go()
    assert (state.flat, state.step) == (state.seen, 0)
    failed = [c for c in session.store.runs[session.run].candidates.values() if c.evaluation.failure]
    assert failed, "half of the answers have no rewards"


def test_a_failed_step_is_undone_and_the_run_goes_on_frozen() -> None:
    learner = FakeLearner({3: LearningError("the loss of step 3 is not finite, so the step was undone.")})
    session = Session(learning_spec(321), learner)
    state = session.go()
    assert session.progress.state is RunState.COMPLETED
    assert (state.step, state.ended) == (2, "the loss of step 3 is not finite, so the step was undone.")
    assert session.policies[-1] == "base-000000000001@2"
    session.check_books()


def test_a_full_disk_pauses_the_run_and_the_step_is_taken_later() -> None:
    learner = FakeLearner({2: UnavailableError("the checkpoint of step 2 cannot be written: the disk is full")})
    session = Session(learning_spec(321), learner)
    session.go()
    assert session.progress.state is RunState.PAUSED
    assert "the disk is full" in session.progress.reason
    context = session.store.runs[session.run].context
    session.signals.committed(session.store.move(session.run, lambda change: ledger.resume(change, context)))
    state = session.go()
    assert session.progress.state is RunState.COMPLETED
    first, again = session.learner.tasks[1:3]
    assert (first.step, first.groups) == (again.step, again.groups)
    assert state.ended is None
    session.check_books()


def test_learning_ends_after_its_steps_and_within_the_token_budget() -> None:
    session = Session(learning_spec(321, steps=2))
    assert session.go().ended == "all 2 steps are taken"
    assert session.progress.state is RunState.COMPLETED
    session.check_books()
    budget = {"evaluations": 321, "tokens": 900}
    limited = Session(RunSpec.model_validate(learning_spec(321).model_dump() | {"budget": budget}))
    limited.go()
    assert limited.progress.tokens <= 900
    assert 0 < limited.state.tokens < limited.progress.tokens
    assert limited.state.ended == "the rest of the token budget does not suffice for a step of 80 tokens"
    limited.check_books()


@pytest.mark.parametrize(
    ("changes", "policy", "words"),
    [
        ({"samples_per_prompt": 4}, {}, "expected samples_per_prompt and batch of at least 8, not 4 and 16"),
        ({"batch": 4}, {}, "not 8 and 4"),
        ({}, {"answers_per_rollout": 3}, "takes one answer per completion, and policy base@1 writes 3"),
        (
            {"learning": {"estimator": "vpo"}},
            {},
            "vpo takes several answers per completion, and policy base@1 writes 1",
        ),
        ({"budget": {"evaluations": 5}}, {}, "5 evaluations, of a run or of a slice, fill no group of 8 answers"),
        (
            {"budget": {"evaluations": 23}, "learning": {"estimator": "vpo"}, "batch": 48, "samples_per_prompt": 48},
            {"answers_per_rollout": 3},
            "fill no group of 24 answers",
        ),
        (
            {"budget": {"evaluations": 16}, "learning": {"kappa": 16}, "batch": 32, "samples_per_prompt": 32},
            {},
            "fill no group of 17 answers",
        ),
        ({}, {"answers_per_rollout": 3, "prompt_style": PromptStyle.SCAFFOLDED}, "sets take several requests"),
        (
            {"learning": {"estimator": "vpo"}, "batch": 32, "samples_per_prompt": 32},
            {"answers_per_rollout": 3},
            "a completion holds 3 answers: expected multiples of that",
        ),
        ({"learning": {"kappa": 8}}, {}, "learning.kappa: expected less than the 8 completions"),
        ({"learning": {"estimator": "grpo", "draws": 7}}, {}, "grpo does not use draws"),
        ({"learning": {"lora_rank": 4}}, {}, "expected 0: the embedded server loads whole checkpoints"),
        ({}, {"kind": "openai_compatible"}, "expected at least 1: it loads adapters, for policy base@1"),
        ({}, {"kind": "program_mutator", "model": None}, "learning: policy base@1 of kind 'program_mutator'"),
    ],
)
def test_runs_that_cannot_learn_are_refused(changes: dict[str, Any], policy: dict[str, Any], words: str) -> None:
    definition = Policy.model_validate({**BASE.model_dump(), **policy})
    version = PolicyVersion.model_validate(
        {"id": UUID(int=1), "version": 1, "digest": "d", "created_at": "2026-01-01T00:00:00Z", "definition": definition}
    )

    class Stored:
        definition = toy_problem()

    spec = RunSpec.model_validate(learning_spec(100).model_dump() | changes)
    with pytest.raises(InvalidInputError, match=words):
        check_run(Stored(), RunPolicies(version), spec)  # type: ignore[arg-type]


def test_a_run_that_learns_is_not_replayed() -> None:
    session = Session(learning_spec(81).model_copy(update={"lanes": 1}))
    session.go()
    with pytest.raises(ReplayError, match="trained its policy, and a replay trains nothing"):
        replay(
            session.store.context(session.run),
            [],
            session.store.events(session.run),
            store=MemoryWorkStore(ticking_clock()),
            evaluator=ToyEvaluator(),
            client_for=lambda _: session.client,
        )


def test_a_policy_that_training_has_spoiled_is_named_as_the_cause() -> None:
    session = Session(learning_spec(641))
    client = session.client
    answer = client.sample

    def spoiled(requests: list[SampleRequest]) -> list[SampleResult]:
        found = answer(requests)
        if len(session.learner.tasks) < 2:
            return found
        return [replace(each, completions=tuple(replace(c, text="?") for c in each.completions)) for each in found]

    client.sample = spoiled  # type: ignore[method-assign]
    session.go()
    assert session.progress.state is RunState.PAUSED
    assert "A learned version of the policy wrote these completions" in session.progress.diagnosis["remedy"]
