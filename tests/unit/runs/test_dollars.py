"""A budget of dollars is spent as far as another request fits, and never exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from speciate.domain.budget import Budget
from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, Price
from speciate.domain.run import RunState
from speciate.policies import build_client
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.ports.work import Lease, RunContext, WorkKind
from speciate.runs import ledger
from speciate.runs.checks import check_run
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.progress import RunChange, RunProgress
from speciate.schema.policies import PolicyVersion, RunPolicies
from tests.support.memory_store import MemoryWorkStore
from tests.support.runs import ToyEvaluator, ticking_clock, toy_problem, toy_spec

OPTIONS = {"template": "```python\nx = 0.{number}\ny = 5\n```", "tokens_per_completion": 3, "prompt_tokens": 10}


def run(budget: Budget, *, fails: bool = False, lanes: int = 1) -> RunProgress:
    """Run a policy that asks $1,000 for a million tokens of a prompt, and $2,000 for a million of a completion."""
    policy = Policy(slug="paid", kind="scripted", options=OPTIONS, price=Price(input=1000, output=2000))
    context = RunContext(uuid4(), toy_problem(), policy, uuid4(), toy_spec(budget=budget, lanes=lanes))
    store, signals = MemoryWorkStore(ticking_clock()), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, ToyEvaluator(), build_client), signals)
    return store.runs[context.run_id].progress


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_budget_of_dollars_is_spent_and_not_exceeded(lanes: int) -> None:
    progress = run(Budget(dollars=0.5), lanes=lanes)
    assert progress.state is RunState.COMPLETED
    assert (
        progress.reason == "the rest of the budget does not suffice for another request, with its prompt and max_tokens"
    )
    # A request for one completion reserves 13 tokens at the higher price.
    assert 0.5 - 13 * 0.002 <= progress.cost <= 0.5
    assert progress.reserved_tokens == 0
    assert progress.cost == pytest.approx(
        0.01 * (progress.tokens - 3 * progress.rollouts) / 10 + 0.006 * progress.rollouts
    )


class Agents:
    """Agents that report 25 cents for each answer; while one writes, the other lanes work until they wait for one."""

    def __init__(self, context: RunContext) -> None:
        self.store, self.signals, self.context = MemoryWorkStore(ticking_clock()), LocalQueue(), context
        self.executor = WorkExecutor(self.store, self.signals, ToyEvaluator(), lambda _: self)
        self.writer = build_client(Policy(slug="s", kind="scripted", options=OPTIONS))
        self.writing, self.most_writing, self.most_dollars = 0, 0, 0.0

    @property
    def progress(self) -> RunProgress:
        return self.store.runs[self.context.run_id].progress

    def run(self) -> RunProgress:
        self.store.add(self.context)
        self.signals.committed(self.store.start(self.context.run_id))
        drain(self.executor, self.signals)
        return self.progress

    def ping(self) -> str:
        return ""

    def token_ceiling(self, request: SampleRequest) -> int:
        return self.writer.token_ceiling(request)

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        answers = sum(request.n for request in requests)
        self.writing += answers
        self.most_writing = max(self.most_writing, self.writing)
        self.most_dollars = max(self.most_dollars, self.progress.cost + 0.25 * self.writing)
        drain(self.executor, self.signals)
        self.writing -= answers
        return [replace(each, cost=0.25 * len(each.completions)) for each in self.writer.sample(requests)]


@pytest.mark.parametrize("price", [None, Price(input=1, output=2)])
@pytest.mark.parametrize(("dollars", "answers", "most"), [(0.1, 1, 1), (0.25, 1, 1), (1.0, 4, 2), (30.0, 120, 64)])
def test_what_agents_report_is_reserved_from_the_second_answer_on(
    dollars: float, answers: int, most: int, price: Price | None
) -> None:
    policy = Policy(slug="agent", kind="command", price=price)
    spec = toy_spec(budget=Budget(dollars=dollars, evaluations=200), lanes=4, batch=16, samples_per_prompt=4)
    agents = Agents(RunContext(uuid4(), toy_problem(), policy, uuid4(), spec))
    progress = agents.run()
    assert (progress.state, progress.reason) == (RunState.COMPLETED, "the budget of dollars is spent")
    assert (progress.cost, progress.rollouts) == (0.25 * answers, answers)
    assert (agents.most_writing, agents.most_dollars) == (most, 0.25 * answers)


def test_evaluations_may_end_a_run_before_its_dollars() -> None:
    progress = run(Budget(dollars=0.5, evaluations=5))
    assert (progress.evaluations, progress.reason) == (5, "the budget of evaluations is spent")
    assert 0 < progress.cost < 0.5


def test_lost_tokens_are_charged_at_the_dearest_price() -> None:
    progress = RunProgress(reserved_tokens=100)
    policy = Policy(slug="paid", kind="scripted", options=OPTIONS, price=Price(input=1000, output=2000))
    context = RunContext(uuid4(), toy_problem(), policy, uuid4(), toy_spec(budget=Budget(dollars=1.0)))
    assert progress.dollars_left(context) == pytest.approx(0.8)
    ledger.charge(progress, ledger.most_of(progress, context, 1, 100))
    assert progress.cost == pytest.approx(0.2)
    assert progress.estimated_tokens == 100


def test_a_lost_attempt_of_agents_is_charged_like_the_dearest_answers() -> None:
    budget = Budget(dollars=9.0)
    context = RunContext(uuid4(), toy_problem(), Policy(slug="a", kind="command"), uuid4(), toy_spec(budget=budget))
    lease = Lease(uuid4(), context.run_id, WorkKind.GENERATE, 0, 1, 1, uuid4(), {"answers": 4}, 0)
    for reserved, cost in [(100, 2.0), (0, 0.0)]:  # without a reservation, no request was sent
        progress = RunProgress(dearest=0.5, reserved_evaluations=4)
        lost = ledger.most_of(progress, context, 4, reserved)
        ledger.record_lost_attempt(RunChange(progress), lease, lost)
        assert (progress.cost, progress.tokens) == (cost, reserved)


def version(**changes: object) -> PolicyVersion:
    definition = Policy.model_validate({"slug": "p", "kind": "openai_compatible", **changes})
    return PolicyVersion.model_construct(id=uuid4(), version=1, definition=definition)


@pytest.mark.parametrize(
    ("changes", "budget", "expected"),
    [
        ({"model": "m"}, Budget(dollars=5, evaluations=9), "add p --kind.* --price input=1 --price output=2` with its"),
        ({"model": "m", "price": Price()}, Budget(dollars=5), "policy p@1 spends no known dollars"),
        ({"model": "m", "price": Price()}, Budget(dollars=5, tokens=9), None),
        ({"kind": "program_mutator"}, Budget(dollars=5), "policy p@1 spends no known dollars"),
        ({"kind": "program_mutator"}, Budget(tokens=9), "policy p@1 spends no known tokens"),
        ({"kind": "program_mutator"}, Budget(dollars=5, evaluations=9), None),
        ({"model": "m", "price": Price(output=1)}, Budget(dollars=5), None),
        ({"kind": "command"}, Budget(tokens=9), None),
        ({"kind": "command"}, Budget(dollars=5), "add p --kind command.* --price input=1 --price output=2`"),
        ({"kind": "command", "price": Price(output=1)}, Budget(dollars=5), None),
    ],
)
def test_a_budget_of_dollars_needs_prices(changes: dict[str, object], budget: Budget, expected: str | None) -> None:
    problem, policies, spec = toy_problem(), RunPolicies(version(**changes)), toy_spec(budget=budget)
    stored = type("Stored", (), {"definition": problem})()
    if expected is None:
        check_run(stored, policies, spec)
        return
    with pytest.raises(InvalidInputError, match=expected):
        check_run(stored, policies, spec)


def test_every_policy_of_a_run_spends_its_budget() -> None:
    stored = type("Stored", (), {"definition": toy_problem()})()
    paid, free = version(model="m", price=Price(output=1)), version(model="m", price=Price())
    for budget in (Budget(dollars=5), Budget(tokens=9)):
        with pytest.raises(InvalidInputError, match="the run might never end"):
            check_run(stored, RunPolicies(paid, version(kind="program_mutator")), toy_spec(budget=budget))
    with pytest.raises(InvalidInputError, match="the run might never end"):
        check_run(stored, RunPolicies(paid, free), toy_spec(budget=Budget(dollars=5)))
    check_run(stored, RunPolicies(paid, free), toy_spec(budget=Budget(tokens=9)))


def test_a_budget_without_dollars_keeps_its_digest() -> None:
    assert Budget(evaluations=3).stored_json() == {"evaluations": 3, "tokens": None, "seconds": None}
    with pytest.raises(ValueError, match="dollars"):
        Budget()
