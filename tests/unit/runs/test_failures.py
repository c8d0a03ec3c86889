"""What a run found reaches its next prompts: the best, attempts and failures; a share of them asks for repairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from evaluators.contained.program import describe, load
from speciate.domain.budget import Budget
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.rollout import Completion
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.ports.work import RunContext
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.external_proposals import plan_asks
from speciate.runs.failures import RecentFailures
from speciate.runs.replay import RecordedCompletion, replay
from speciate.runs.stored_population import StoredPopulation
from speciate.search.strategies import STRATEGIES, build_strategy
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ticking_clock, toy_policy, toy_problem, toy_spec

BROKEN = "x = np.float64({})\ny = 5\n"
CAUSE = "NameError: name 'np' is not defined, at line 1: x = np.float64("


class Runs:
    """Evaluator that runs programs and reads ``x`` and ``y``."""

    tier = "none"

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        return [self._one(program) for program in programs]

    def _one(self, program: str) -> Evaluation:
        try:
            names = load(program, "candidate")
            return Evaluation(rewards=(float(names["x"]), float(names["y"])))
        except Exception as error:  # noqa: BLE001  # any error of a program
            return Evaluation(failure=Failure(FailureKind.CRASHED, "raised", describe(error, program, "candidate")))


class Forgetful:
    """Policy that forgets an import in every program, or writes none."""

    def __init__(self, text: str = f"```python\n{BROKEN}```") -> None:
        self.text = text
        self.asked: list[SampleRequest] = []
        self.recorded: list[RecordedCompletion] = []
        self.numbers: list[int] = []

    def token_ceiling(self, request: SampleRequest) -> int:
        return request.n

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        results = []
        for request in requests:
            numbers = [request.seed % 1000 + i for i in range(request.n)]
            written = [Completion(self.text.format(number)) for number in numbers]
            self.numbers += numbers
            self.recorded += [RecordedCompletion(request.prompt.digest, request.seed, each, 0) for each in written]
            results.append(SampleResult(tuple(written), 0))
        self.asked += requests
        return results

    def ping(self) -> str:
        return "here"


class Lab:
    """An in-memory run of a policy whose programs fail."""

    def __init__(self, client: Forgetful, policy: Policy | None = None, seed: str = "x = 0.0\ny = 5\n", **spec: object):
        self.client, self.policy = client, policy or toy_policy()
        problem = toy_problem(seed_program=seed)
        if spec.get("strategy") == "adaptive_evolution":
            spec["strategy_options"] = {"polish": False}  # every prompt is one of the client's
        self.context = RunContext(uuid4(), problem, self.policy, uuid4(), toy_spec(**{"seed": 1, **spec}))
        self.store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
        self.store.add(self.context)
        signals.committed(self.store.start(self.context.run_id))
        drain(WorkExecutor(self.store, signals, Runs(), lambda _: client), signals)

    @property
    def later(self) -> list[SampleRequest]:
        """Requests after those of the first batch."""
        return self.client.asked[2:]

    def repaired(self) -> list[int]:
        """Numbers of the failed programs that requests show for repair."""
        return [request.parents[0].number for request in self.later if "Fix this first" in request.prompt.user]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", ["x = 0.0\ny = 5\n", ""])
def test_the_cause_of_failures_is_in_all_later_prompts(strategy: str, seed: str) -> None:
    lab = Lab(Forgetful(), seed=seed, strategy=strategy, budget={"evaluations": 80})
    assert len(lab.later) > 30
    later = [request.prompt.user for request in lab.later]
    assert all((CAUSE if "Fix this first" not in user else "NameError, line 1") in user for user in later)
    assert not any(CAUSE in request.prompt.user for request in lab.client.asked[:1])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_share_of_the_prompts_asks_for_the_repair_of_the_newest_failed_program(strategy: str) -> None:
    lab = Lab(Forgetful(), strategy=strategy, budget={"evaluations": 200})
    repaired = lab.repaired()
    if strategy == "best_of_n":
        assert not repaired
        return
    assert 0.1 < len(repaired) / len(lab.later) < 0.45
    candidates = lab.store.runs[lab.context.run_id].candidates
    for request in lab.later:
        if "Fix this first" in request.prompt.user:
            (parent,) = request.parents
            assert request.role is PolicyRole.MUTATE
            assert parent.failure is not None
    children = [c for c in candidates.values() if c.proposal.parents[:1] in {(n,) for n in repaired}]
    assert children
    assert all(c.proposal.island == candidates[c.proposal.parents[0]].proposal.island
               for c in children)  # fmt: skip


def test_every_second_failed_program_is_repaired_on_average_if_few_fail() -> None:
    client = Forgetful("```python\nx = 8 / ({} % 4)\ny = 5\n```")
    shares = []
    for style in ("standard", "compact"):
        lab = Lab(client, toy_policy(prompt_style=style), budget={"evaluations": 400}, samples_per_prompt=1)
        repairs = [request for request in lab.later if request.parents and request.parents[0].failure]
        shares.append(len(repairs) / len(lab.later))
        client.asked.clear()
    assert 0.06 < shares[0] < 0.2
    assert shares[1] == 0


def test_rejections_are_named_and_not_repaired() -> None:
    lab = Lab(Forgetful("I have no idea."), budget={"evaluations": 30})
    assert all("no_code_block: the answer has no code fence" in request.prompt.user for request in lab.later)
    assert not lab.repaired()


def test_a_run_whose_programs_work_shows_no_failures() -> None:
    lab = Lab(Forgetful("```python\nx = 0.{}\ny = 5\n```"), budget={"evaluations": 60})
    assert not any("Recent failures" in request.prompt.user for request in lab.later)
    assert not lab.repaired()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_later_prompts_show_the_best_program_the_budget_and_what_was_tried(strategy: str) -> None:
    client = Forgetful("Raise x to {0}.\n\n```python\nx = 0.{0}\ny = 5\n```")
    lab = Lab(client, strategy=strategy, budget={"evaluations": 60}, samples_per_prompt=1, batch=1)
    candidates = lab.store.runs[lab.context.run_id].candidates
    if strategy == "best_of_n":
        assert not any("## The search" in request.prompt.user for request in client.asked)
        return
    for i, request in enumerate(client.asked):
        user, spent = request.prompt.user, i + 1
        values = {number: candidates[number].evaluation.rewards[0] for number in range(1, spent + 1)}
        if values[spent] in list(values.values())[:-1]:
            continue  # a repeated reward is named as such
        best = max(values, key=lambda number: (values[number], -number))
        assert f"Best: program {best}" in user
        assert f"x = {values[best]:.6g}" in user
        assert f"Evaluations left after this answer: {60 - spent - 1}." in user
        repeats = [*values.values()].count(values[spent]) > 1
        if i and not repeats:
            parents = candidates[spent].proposal.parents
            origin = f"from #{parents[0]}" if parents else "from scratch"
            before = max(value for number, value in values.items() if number < spent)
            gain = f"x {values[spent]:.6g} (best before {before:.6g})"
            assert f"#{spent} {origin}, Raise x to {client.numbers[i - 1]}: {gain}\n" in user


def test_policies_that_read_no_prompts_repair_nothing_and_read_no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryWorkStore, "latest", None)
    blind = Policy(slug="mutator", kind="program_mutator")
    lab = Lab(Forgetful(), policy=blind, budget={"evaluations": 60})
    assert lab.store.runs[lab.context.run_id].progress.evaluations == 60
    assert not lab.repaired()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replay_gives_the_same_prompts(strategy: str) -> None:
    lab = Lab(Forgetful(), strategy=strategy, budget={"evaluations": 100})
    report = replay(
        lab.context, lab.client.recorded, lab.store.events(lab.context.run_id),
        store=MemoryWorkStore(ticking_clock()), evaluator=Runs(), client_for=lambda _: Forgetful(),
    )  # fmt: skip
    assert report.identical, report.describe()


def test_proposers_from_outside_receive_causes_and_repairs() -> None:
    lab = Lab(Forgetful(), budget={"evaluations": 60})
    external = Policy(slug="external", kind="external")
    asks = plan_asks(lab.context, lab.store, external, [uuid4() for _ in range(60)], batch=20, hinted=False)
    assert all((CAUSE if ask.selection.parents != (60,) else "line 1") in ask.shown.prompt.user for ask in asks)
    repairs = [ask for ask in asks if "Fix this first" in ask.shown.prompt.user]
    assert 4 < len(repairs) < 30
    assert {ask.selection.parents for ask in repairs} == {(60,)}
    (own,) = plan_asks(lab.context, lab.store, external, [uuid4()], batch=20, hinted=False, parents=[1])
    assert own.selection.parents == (1,)


def test_a_failure_is_told_once_and_not_after_it_was_mended() -> None:
    lab = Lab(Forgetful("```python\nx = 8 / ({} % 4)\ny = 5\n```"), budget={"evaluations": 60}, samples_per_prompt=1)
    candidates = lab.store.runs[lab.context.run_id].candidates
    mended = {c.proposal.parents[0] for c in candidates.values() if c.evaluation.rewards and c.proposal.parents}
    failed = {number for number, c in candidates.items() if c.evaluation.failure}
    population = StoredPopulation(lab.store, lab.context, 50)
    strategy = build_strategy(lab.context.spec.strategy, lab.context.spec.strategy_options)
    failures = RecentFailures(lab.context, lab.store, population, strategy, [lab.policy])
    assert mended & failed
    assert failures.causes
    assert not failures.causes_beside(failed - mended)


def test_near_the_end_of_the_budget_proposers_change_the_best_program() -> None:
    lab = Lab(Forgetful("```python\nx = 0.{}\ny = 5\n```"), budget={"evaluations": 60}, samples_per_prompt=1)
    external = Policy(slug="external", kind="external")
    for left, only_best in ((2, True), (6, True), (30, False)):
        spec = lab.context.spec.model_copy(update={"budget": Budget(evaluations=60 + left)})
        lab.store.runs[lab.context.run_id].context = context = replace(lab.context, spec=spec)
        asks = plan_asks(context, lab.store, external, [uuid4() for _ in range(30)], batch=20, hinted=False)
        best = lab.store.standing(lab.context.run_id).best
        assert ({ask.selection.parents for ask in asks} == {(best,)}) is only_best
