"""A budget of dollars is spent as far as another request fits, and never exceeded."""

from __future__ import annotations

from uuid import uuid4

import pytest

from speciate.domain.budget import Budget
from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import Policy, Price
from speciate.domain.run import RunState
from speciate.policies import build_client
from speciate.ports.work import RunContext
from speciate.runs.checks import check_run
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.progress import RunProgress
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


def test_evaluations_may_end_a_run_before_its_dollars() -> None:
    progress = run(Budget(dollars=0.5, evaluations=5))
    assert (progress.evaluations, progress.reason) == (5, "the budget of evaluations is spent")
    assert 0 < progress.cost < 0.5


def test_lost_tokens_are_charged_at_the_dearest_price() -> None:
    from speciate.runs import ledger

    progress = RunProgress(reserved_tokens=100)
    policy = Policy(slug="paid", kind="scripted", options=OPTIONS, price=Price(input=1000, output=2000))
    context = RunContext(uuid4(), toy_problem(), policy, uuid4(), toy_spec(budget=Budget(dollars=1.0)))
    assert progress.spent().dollars_left(context.spec.budget, context.token_price) == pytest.approx(0.8)
    ledger.charge(progress, ledger.most_of(100, context))
    assert progress.cost == pytest.approx(0.2)
    assert progress.estimated_tokens == 100


def version(**changes: object) -> PolicyVersion:
    definition = Policy.model_validate({"slug": "p", "kind": "openai_compatible", **changes})
    return PolicyVersion.model_construct(id=uuid4(), version=1, definition=definition)


@pytest.mark.parametrize(
    ("changes", "budget", "expected"),
    [
        ({"model": "m"}, Budget(dollars=5, evaluations=9), "policy p@1 has no price"),
        ({"model": "m", "price": Price()}, Budget(dollars=5), "policy p@1 spends no known dollars"),
        ({"model": "m", "price": Price()}, Budget(dollars=5, tokens=9), None),
        ({"kind": "program_mutator"}, Budget(dollars=5), "policy p@1 spends no known dollars"),
        ({"kind": "program_mutator"}, Budget(tokens=9), "policy p@1 spends no known tokens"),
        ({"kind": "program_mutator"}, Budget(dollars=5, evaluations=9), None),
        ({"model": "m", "price": Price(output=1)}, Budget(dollars=5), None),
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
