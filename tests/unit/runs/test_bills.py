"""A run records exactly the bill of its endpoint, and a refused prompt is an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from speciate.domain.budget import Budget
from speciate.domain.policy import Price
from speciate.domain.run import RunState
from tests.support.openai_endpoint import Endpoint, Reply, serve
from tests.support.runs import toy_spec
from tests.support.served_run import FinishedRun, served_policy, served_run

PRICE = Price(input=1000, output=2000)
PROGRAM = "```python\nx = 0.{number}\ny = 5\n```"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serve() as served:
        yield served


@dataclass
class Bill:
    """An endpoint that bills every request for which ``reply`` returns a body with usage."""

    reply: Callable[[int, dict[str, Any]], Reply | None] = lambda _, __: None
    requests: int = 0
    prompt: int = 0
    completion: int = 0
    usage: dict[str, int] = field(default_factory=dict)

    def answer(self, body: dict[str, Any]) -> Reply:
        self.requests += 1
        number = self.requests
        self.usage = {"prompt_tokens": 100 + number, "completion_tokens": 10 * body["n"]}
        self.prompt += self.usage["prompt_tokens"]
        self.completion += self.usage["completion_tokens"]
        return self.reply(number, body) or self.good(body, number)

    def good(self, body: dict[str, Any], number: int, **first: Any) -> Reply:
        texts = [PROGRAM.format(number=f"{number}{index}1") for index in range(body["n"])]
        choices = [{"index": i, "text": text, "finish_reason": "stop"} for i, text in enumerate(texts)]
        choices[0] |= first
        return self.failed(200, choices=choices)

    def failed(self, status: int, **body: Any) -> Reply:
        return status, {}, json.dumps({"usage": self.usage, **body}).encode()


def run_with(endpoint: Endpoint, bill: Bill, budget: Budget, **changes: Any) -> FinishedRun:
    endpoint.routes["completions"] = bill.answer
    options = {"check": False, **changes.pop("options", {})}
    policy = served_policy(endpoint.url, "m", price=PRICE, sampling={"max_tokens": 40}, options=options, **changes)
    return served_run(policy, toy_spec(budget=budget, batch=8, samples_per_prompt=4, lanes=1))


def paid(run: FinishedRun) -> tuple[int, float]:
    return run.progress.tokens, round(run.progress.cost, 9)


def billed(bill: Bill) -> tuple[int, float]:
    return bill.prompt + bill.completion, round(PRICE.cost(bill.prompt, bill.completion), 9)


def _null(bill: Bill) -> Callable[[int, dict[str, Any]], Reply | None]:
    return lambda number, body: bill.good(body, number, text=None) if number % 2 else None


def _busy(bill: Bill) -> Callable[[int, dict[str, Any]], Reply | None]:
    return lambda number, _: bill.failed(503, error={"message": "busy"}) if number % 3 else None


def _malformed(bill: Bill) -> Callable[[int, dict[str, Any]], Reply | None]:
    return lambda number, _: bill.failed(200, result=number) if number % 2 else None


def _refused(bill: Bill) -> Callable[[int, dict[str, Any]], Reply | None]:
    return lambda number, _: bill.failed(400, error={"code": "content_filter"}) if number % 2 else None


@pytest.mark.parametrize("fault", [_null, _busy, _malformed, _refused])
@pytest.mark.parametrize("budget", [Budget(evaluations=60), Budget(dollars=6.0), Budget(tokens=4500)])
def test_a_run_records_what_was_billed(endpoint: Endpoint, fault: Callable[[Bill], Any], budget: Budget) -> None:
    bill = Bill()
    bill.reply = fault(bill)
    run = run_with(endpoint, bill, budget)
    assert paid(run) == billed(bill)
    assert run.progress.reserved_tokens == 0
    assert bill.requests >= 6
    assert run.progress.tokens <= (budget.tokens or 10**9)
    assert run.progress.cost <= (budget.dollars or 10**9)
    if budget.evaluations:
        assert (run.progress.state, run.progress.evaluations) == (RunState.COMPLETED, 60)


def test_a_run_that_pauses_records_what_was_billed(endpoint: Endpoint) -> None:
    bill = Bill()
    bill.reply = lambda number, _: bill.failed(200, result="the same") if number > 4 else None
    run = run_with(endpoint, bill, Budget(dollars=20.0))
    assert run.progress.state is RunState.PAUSED
    assert "the response has no choices" in str(run.progress.reason)
    assert paid(run) == billed(bill)


def test_a_lost_answer_never_exceeds_the_budget(endpoint: Endpoint) -> None:
    """The bill of a request that timed out is unknown: it counts as the dearest, and the run says so."""
    bill = Bill()
    bill.reply = lambda *_: time.sleep(0.4)
    run = run_with(endpoint, bill, Budget(dollars=28.0), timeout_s=0.2, options={"max_retries": 20})
    assert (run.progress.state, run.progress.reasons) == (RunState.PAUSED, {"refused": 6})
    assert "no answer within 0.2 s (after 1 attempts; the budget holds no further one)" in str(run.progress.reason)
    assert "Raise --timeout-s" in str(run.progress.reason)
    assert bill.requests > 1
    assert billed(bill)[1] <= run.progress.cost <= 28.0
    assert run.progress.estimated_tokens == run.progress.tokens > 0


@pytest.mark.parametrize(("answered", "evaluations", "state"), [(9, 60, "completed"), (10**6, 7, "paused")])
def test_a_run_pauses_only_if_many_prompts_in_a_row_are_refused(
    endpoint: Endpoint, answered: int, evaluations: int, state: str
) -> None:
    """Each refused prompt costs one evaluation, so that a run neither stands still nor goes on for ever."""
    bill = Bill()

    def refuse(number: int, body: dict[str, Any]) -> Reply | None:
        if number % answered == (1 if answered == 9 else 0):
            return None
        return 400, {}, b'{"error": {"message": "The prompt triggered the content management policy."}}'

    bill.reply = refuse
    run = run_with(endpoint, bill, Budget(evaluations=60))
    assert (run.progress.state, run.progress.evaluations) == (RunState(state), evaluations)
    assert run.progress.reasons.keys() == {"refused"}
    if state == "paused":
        assert "no prompt was accepted (6 in a row): it answered 400: The prompt triggered" in str(run.progress.reason)
        assert run.progress.diagnosis["remedy"] in str(run.progress.reason)
        assert "filter refused the prompt" in run.progress.diagnosis["remedy"]


@pytest.mark.parametrize("evaluations", [2, 6, 7])
def test_a_run_whose_budget_bought_only_refusals_pauses(endpoint: Endpoint, evaluations: int) -> None:
    refusal = 400, {}, b'{"error": {"message": "The prompt triggered a filter."}}'
    run = run_with(endpoint, Bill(lambda *_: refusal), Budget(evaluations=evaluations))
    assert (run.progress.state, run.progress.evaluations) == (RunState.PAUSED, evaluations)
    assert f"no prompt was accepted ({evaluations - 1} in a row)" in str(run.progress.reason)


HIDDEN = "sent its whole answer as reasoning_content (90 characters)"


@pytest.mark.parametrize(
    ("contents", "ended", "says", "remedy"),
    [
        ([""], "stop", HIDDEN, "--reasoning-format none"),
        (
            ["<think>Hm", "```python\nx = (\n"],
            "length",
            "is cut off at its limit of tokens (8 in a row)",
            "--max-tokens",
        ),
    ],
)
def test_reasoning_without_an_answer_pauses_after_a_few_answers(
    endpoint: Endpoint, contents: list[str], ended: str, says: str, remedy: str
) -> None:
    bill = Bill()

    def thinking(_: int, body: dict[str, Any]) -> Reply:
        texts = [contents[i % len(contents)] for i in range(body["n"])]
        messages = [{"content": text, **({} if text else {"reasoning_content": "x" * 90})} for text in texts]
        choices = [{"index": i, "message": each, "finish_reason": ended} for i, each in enumerate(messages)]
        return bill.failed(200, choices=choices)

    bill.reply = thinking
    run = run_with(endpoint, bill, Budget(evaluations=100))
    assert (run.progress.state, run.progress.evaluations) == (RunState.PAUSED, 9)
    assert says in str(run.progress.reason)
    assert remedy in run.progress.diagnosis["remedy"]


def test_tokens_that_are_not_reported_are_said_to_be_estimated(endpoint: Endpoint) -> None:
    bill = Bill()
    bill.reply = lambda number, body: (200, {}, json.dumps({"choices": [{"text": PROGRAM}] * body["n"]}).encode())
    run = run_with(endpoint, bill, Budget(evaluations=9))
    assert run.progress.estimated_tokens == run.progress.tokens > 0
    bill.reply = lambda number, body: None
    assert run_with(endpoint, bill, Budget(evaluations=9)).progress.estimated_tokens == 0
