"""Replays of a candidate, from the request on its page to the result there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from speciate.domain.candidate import Evaluation
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.problem import Problem
from speciate.settings import Settings
from tests.integration.service.conftest import Lab
from tests.support.runs import ToyEvaluator, toy_problem
from workers.composition import UnitWorker
from workers.retention import prune_runs

pytestmark = pytest.mark.servers


class Seeded(ToyEvaluator):
    """Adds to ``x`` what follows from the seed; while ``outage`` is set, it cannot run."""

    tier = "A"
    outage = ""

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        if self.outage:
            raise EvaluatorUnavailableError(self.outage)
        results = super().evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)
        return [
            replace(result, tier=self.tier, rewards=(result.rewards[0] + seed % 97 / 97, result.rewards[1]))
            for result, seed in zip(results, seeds, strict=True)
            if result.rewards is not None
        ]


def request_replay(lab: Lab, page: str) -> None:
    own = {"Origin": str(lab.api.http.base_url).rstrip("/")}
    assert lab.api.http.post(f"{page}/replay", data={"button": ""}, headers=own).status_code == 303
    assert "waiting for a worker" in lab.api.get(page).text


def test_a_replay_is_compared_with_the_first_of_several_noisy_evaluations(lab: Lab, settings: Settings) -> None:
    lab.stores.catalog.add_problem(toy_problem().model_copy(update={"stochastic": True}))
    run, evaluator = lab.start(40), Seeded()
    lab.work(evaluator=evaluator)
    mean = next(c for c in lab.stores.queries.candidates(run, limit=50).items if c.first and c.first != c.rewards)
    worker, page = UnitWorker(settings, lab.stores, evaluator), f"/runs/{run}/candidates/{mean.number}"
    request_replay(lab, page)
    worker.replay(lab.stores.queries.candidate(mean.id))
    assert "Same result as the first evaluation" in lab.api.get(page).text
    evaluator.evaluate = lambda *_, **__: [Evaluation(rewards=(0.5, 0.25), tier="A")]  # type: ignore[method-assign]
    worker.replay(lab.stores.queries.candidate(mean.id))
    text = lab.api.get(page).text
    assert "Different result from the first evaluation" in text
    assert mean.first is not None
    assert f'<td class="num">{mean.first["x"]:.4g}</td><td class="num">0.5</td>' in text


def test_a_replay_without_an_evaluator_ends_with_its_reason(lab: Lab, settings: Settings) -> None:
    run, evaluator = lab.start(5), Seeded()
    lab.work(evaluator=evaluator)
    candidate = lab.stores.queries.candidates(run, limit=1).items[0]
    page = f"/runs/{run}/candidates/{candidate.number}"
    request_replay(lab, page)
    evaluator.outage = "Programs in <Rust> need sandbox tier A."
    UnitWorker(settings, lab.stores, evaluator).replay(lab.stores.queries.candidate(candidate.id))
    text = lab.api.get(page).text
    assert "The evaluator could not run" in text
    assert "Programs in &lt;Rust&gt; need sandbox tier A." in text
    assert "waiting for a worker" not in text
    assert "Replay candidate" in text


def test_a_pruned_program_cannot_be_replayed(lab: Lab) -> None:
    run = lab.start(20)
    lab.work(evaluator=Seeded())
    assert prune_runs(lab.stores, -1.0) == 1
    listed = lab.stores.queries.candidates(run, limit=20).items  # pruning keeps the programs of the front
    candidate = next(each for each in listed if not lab.stores.queries.candidate(each.id).program)
    address, own = f"/runs/{run}/candidates/{candidate.number}", {"Origin": str(lab.api.http.base_url).rstrip("/")}
    answer = lab.api.http.post(f"{address}/replay", data={"button": ""}, headers=own)
    assert answer.status_code == 409
    assert "evaluated before its text was pruned" in answer.text
    page = lab.api.get(address).text
    assert "Its text was pruned, so there is nothing to replay." in page
    assert "Replay candidate" not in page
