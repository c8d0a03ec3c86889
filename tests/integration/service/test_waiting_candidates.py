"""The page of a candidate while its evaluation waits and lasts, and of one whose confirmation lasts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import httpx
import pytest

from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem
from speciate.messaging.active import ActiveEvaluations
from speciate.ports.reporting import report_evaluation, report_progress
from speciate.ports.work import Lease, WorkKind
from speciate.runs.executor import WorkExecutor
from tests.integration.service.conftest import Lab, refused
from tests.support.runs import ToyEvaluator

pytestmark = pytest.mark.servers

JSON = {"Accept": "application/json"}


@pytest.fixture(autouse=True)
def _unthrottled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speciate.messaging.active._EVERY_S", 0.0)


class Looking(ToyEvaluator):
    """An evaluator that reports progress and looks at pages while it evaluates; of confirmations, if asked."""

    def __init__(self, lab: Lab, run: UUID, kind: WorkKind) -> None:
        super().__init__()
        self.lab, self.run, self.kind = lab, run, kind
        self.lease: Lease | None = None
        self.pages: dict[int, str] = {}

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        assert self.lease is not None
        if self.lease.kind is self.kind:
            first = self.lease.payload["first" if self.kind is WorkKind.EVALUATE else "number"]
            for number, (program, seed) in enumerate(zip(programs, seeds, strict=True), start=first):
                report_evaluation(program, seed)
                report_progress("epoch <b>3</b> of 10")
                self.pages[number] = self.lab.api.get(f"/runs/{self.run}/candidates/{number}").text
            self.pages[0] = self.lab.api.get(f"/runs/{self.run}/candidates/{first}").text
        return super().evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)


def look(lab: Lab, run: UUID, kind: WorkKind = WorkKind.EVALUATE) -> dict[int, str]:
    """Work until a batch of several candidates, or a confirmation, was looked at; return its pages by number."""
    evaluator, active = Looking(lab, run, kind), ActiveEvaluations(lab.stores.redis, expiry_s=30)

    def keep(lease: Lease) -> ExitStack:
        evaluator.lease = lease
        stack = ExitStack()
        stack.enter_context(active.track(lease))
        return stack

    executor = WorkExecutor(lab.stores.work, lab.stores.signals, evaluator, _client, keep=keep)
    while len(evaluator.pages) < (3 if kind is WorkKind.EVALUATE else 2):
        evaluator.pages.clear()
        (unit,) = lab.stores.runs.work_in_flight(limit=1)
        assert executor.execute(unit.work_id)
    return evaluator.pages


def _client(policy: Any) -> Any:
    from speciate.policies import build_client

    return build_client(policy)


def part(answer: httpx.Response) -> str:
    """Return the HTML of the only part of a stream that has ended."""
    (data,) = [line for line in answer.text.splitlines() if line.startswith('data: {"html')]
    html: str = json.loads(data.removeprefix("data: "))["html"]
    return html


def test_progress_is_on_the_page_of_the_candidate_until_it_has_a_result(lab: Lab) -> None:
    run = lab.start(13)
    pages = look(lab, run)
    first, last = min(number for number in pages if number), max(pages)
    for number in range(first, last + 1):
        assert "Under evaluation" in pages[number]
        assert "epoch &lt;b&gt;3&lt;/b&gt; of 10" in pages[number]
        assert f"candidates {first}–{last} are one batch" in pages[number]
    assert "Evaluated; the rest of the batch is not." in pages[0]
    assert f'/candidates/{last}">candidate {last}</a>' in pages[0]
    live = f"/runs/{run}/candidates/{first}/live"
    assert f'data-then="/runs/{run}/candidates/{first}"' in part(lab.api.get(f"{live}?awaited=1"))
    assert "data-then" not in part(lab.api.get(live))
    assert "Rewards" in lab.api.get(f"/runs/{run}/candidates/{first}").text


def test_progress_of_a_confirmation_is_on_the_page_of_its_candidate(lab: Lab) -> None:
    run = lab.start(13)
    pages = look(lab, run, WorkKind.CONFIRM)
    assert "Confirmation" in pages[max(pages)]
    assert "epoch &lt;b&gt;3" in pages[max(pages)]
    assert "Rewards" in pages[max(pages)]


def test_a_candidate_that_waits_says_for_what_and_a_cancelled_one_ends(lab: Lab) -> None:
    run = lab.start(13)
    page = lab.api.get(f"/runs/{run}/candidates/1").text
    assert "It waits for a free worker." in page
    assert "seed program" in page
    assert lab.api.post(f"/v1/runs/{run}:pause").status_code < 300
    assert "the run is resumed" in lab.api.get(f"/runs/{run}/candidates/1").text
    for number in ("2", "999999999999999999", "99999999999999999999", "x", "-1", "٣"):
        refused(
            lab.api.get(f"/runs/{run}/candidates/{number}", headers={"Accept": "application/json"}), 404, "not-found"
        )
    assert lab.api.post(f"/v1/runs/{run}:cancel").status_code < 300
    refused(lab.api.get(f"/runs/{run}/candidates/1", headers=JSON), 404, "not-found")
