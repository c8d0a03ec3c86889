"""Runs that start from given programs and from other runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from speciate.cli.runs.replay import replay_run
from speciate.client import Client
from speciate.domain.access import Scope
from speciate.settings import Settings
from speciate.storage.stores import Stores
from tests.integration.service.conftest import Api, Lab, refused, scripted
from tests.integration.service.tournament_lab import rows_of
from tests.support.runs import ToyEvaluator, toy_problem
from workers.retention import prune_runs

pytestmark = pytest.mark.servers

TRADE_OFFS = [f"```python\nx = {x}\ny = {x}\n```" for x in range(10)]
"""Programs of which each is on the Pareto front."""


@pytest.fixture
def front(lab: Lab) -> str:
    """A run with several candidates on its front, best first in the answer of the API."""
    lab.stores.catalog.add_policy(scripted(TRADE_OFFS, slug="trade-offs"))
    run = lab.start(24, policy="trade-offs")
    lab.work()
    return str(run)


def _seeds(lab: Lab, run: object) -> list[dict[str, Any]]:
    listed = lab.api.get(f"/v1/runs/{run}/candidates", params={"role": "seed"}).json()["items"]
    return [lab.api.get(f"/v1/candidates/{item['id']}").json() for item in reversed(listed)]


def test_a_run_starts_from_texts_and_from_the_front_of_another(lab: Lab, front: str) -> None:
    best_first = lab.api.get(f"/v1/runs/{front}/front").json()["items"]
    assert len(best_first) > 3
    programs = [lab.api.get(f"/v1/candidates/{item['id']}").json()["program"] for item in best_first]
    given = {
        "seeds": [{"program": "x = 2\ny = 7\n", "name": "mine.py"}, {"program": programs[1]}],
        "seed_from": [{"run": front, "limit": 3}, {"run": front, "take": "best"}],
        "strategy_options": {"islands": 2},
        # Seeds may resemble each other; only what a policy writes is rejected as a near-duplicate.
        "novelty": {"near": 0.5, "shingle": 1},
    }
    run = lab.start(12, **given)
    lab.work()
    seeds = _seeds(lab, run)
    first, third = (f"{front}/{best_first[i]['number']}" for i in (0, 2))
    assert [seed["origin"] for seed in seeds] == ["mine.py", None, first, third]
    assert [seed["program"] for seed in seeds] == ["x = 2\ny = 7\n", programs[1], programs[0], programs[2]]
    assert [seed["island"] for seed in seeds] == [0, 1, 0, 1]
    assert all(seed["rewards"] for seed in seeds)
    record = lab.api.get(f"/v1/runs/{run}").json()
    assert (record["seeds"], record["spent"]["evaluations"]) == (4, 12)
    islands = {elite["island"] for elite in lab.api.get(f"/v1/runs/{run}/archive").json()["items"]}
    assert islands == {0, 1}
    report = replay_run(lab.stores, run, ToyEvaluator())  # type: ignore[arg-type]
    assert report.identical, report.describe()
    page = lab.api.get(f"/runs/{run}/candidates/3").text
    assert f'href="/runs/{front}/candidates/{best_first[0]["number"]}"' in page
    assert "4 given programs" in lab.api.get(f"/runs/{run}/configuration").text
    # The programs are copies: the run stands without its source.
    assert lab.api.http.delete(f"/v1/runs/{front}").status_code == 200
    assert _seeds(lab, run) == seeds


def test_an_unlock_names_the_effort_of_the_runs_that_its_run_started_from(lab: Lab, front: str) -> None:
    def start_from(run: str, evaluations: int) -> str:
        body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": evaluations}}
        started = lab.api.post("/v1/runs", body | {"seed_from": [{"run": run, "take": "best"}]}).json()["id"]
        lab.work()
        return str(started)

    middle = start_from(front, 5)
    last = start_from(middle, 20)
    sources = lab.api.get(f"/v1/runs/{last}").json()["sources"]
    assert [(one["run"], one["evaluations"]) for one in sources] == [(middle, 5), (front, 24)]
    assert sources[0]["seconds"] > 0
    reached = lab.api.get(f"/v1/runs/{last}/unlocks").json()["items"]
    assert reached
    assert all(one["sources"] == sources for one in reached)
    assert "24 evaluations" in lab.api.get(f"/runs/{last}").text
    assert all(one["sources"] == [] for one in lab.api.get(f"/v1/runs/{front}/unlocks").json()["items"])


def test_the_client_and_the_form_start_from_a_run(lab: Lab, front: str) -> None:
    best = lab.api.get(f"/v1/runs/{front}").json()["best"]["number"]
    with Client(str(lab.api.http.base_url)) as client:
        texts = {"a.py": "x = 3\ny = 3\n"}
        named = client.runs.create("toy", "scripted", budget=5, seeds=texts, seed_from=f"{front}:best")
        again = client.runs.create("toy", "scripted", budget=20, idempotency_key="k", seed_from=front)
        assert client.runs.create("toy", "scripted", budget=20, idempotency_key="k", seed_from=front).id == again.id
    own = {"Origin": str(lab.api.http.base_url).rstrip("/")}
    form = {"problem": "toy", "policy": "scripted", "budget.evaluations": "5", "seed_from": f"{front}:best"}
    started = lab.api.http.post("/runs", data=form, headers=own)
    assert started.status_code == 303
    lab.work()
    assert [seed["origin"] for seed in _seeds(lab, named.id)] == ["a.py", f"{front}/{best}"]
    (seed,) = _seeds(lab, started.headers["location"].rpartition("/")[2])
    assert seed["origin"] == f"{front}/{best}"
    wrong = lab.api.http.post("/runs", data=form | {"seed_from": "x:worst"}, headers=own)
    assert wrong.status_code == 422
    assert "expected RUN, RUN:front" in wrong.text
    body: dict[str, Any] = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 20}}
    body["seed_from"] = [{"run": front, "take": "best"}]
    refused(lab.api.post("/v1/runs", body, headers={"Idempotency-Key": "k"}), 409, "conflict")


def test_seeds_that_cannot_work_are_refused(lab: Lab, front: str) -> None:
    def post(**given: Any) -> Any:
        body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 3}}
        return lab.api.post("/v1/runs", body | given)

    text = "x = 1\ny = {}\n"
    many = [{"program": text.format(y)} for y in range(4)]
    assert "4 seed programs and a budget of 3" in refused(post(seeds=many), 422, "invalid-input")["detail"]
    wrong = refused(post(seeds=[{"program": "x = (", "name": "a.py"}]), 422, "invalid-input")["detail"]
    assert "seed program 1 (a.py) cannot be a candidate" in wrong
    refused(post(seeds=[{"program": "x" * (1 << 20 | 1)}]), 422, "invalid-input")
    refused(post(seeds=[{"program": text.format(y)} for y in range(257)]), 422, "invalid-input")
    refused(post(seeds=[{"program": "x = 1", "name": f"{front}/1"}]), 422, "invalid-input")
    refused(post(seed_from=[{"run": front, "take": "best", "limit": 2}]), 422, "invalid-input")
    missing = "0198c0de-7f00-7000-8000-000000000001"
    refused(post(seed_from=[{"run": missing}]), 404, "not-found")
    created = lab.api.post("/v1/runs", {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 3}}).json()
    detail = refused(post(seed_from=[{"run": created["id"]}]), 422, "invalid-input")["detail"]
    assert "has no scored candidate" in detail
    lab.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "other"}))
    detail = refused(post(problem="other", seed_from=[{"run": front}]), 422, "invalid-input")["detail"]
    assert f"run {front} is of problem toy" in detail
    lab.stores.catalog.add_problem(toy_problem(confirmations=2))  # a new version
    assert post(seed_from=[{"run": front, "limit": 2}]).status_code == 202
    for hide in (lambda: lab.api.post(f"/v1/runs/{front}:archive"), lambda: lab.api.http.delete(f"/v1/runs/{front}")):
        assert hide().status_code == 200
        refused(post(seed_from=[{"run": front}]), 409, "conflict")


def test_a_run_of_another_project_is_not_found(
    lab: Lab, front: str, settings: Settings, serve: Callable[..., Api], stores: Stores
) -> None:
    project = stores.projects.create("away")
    away = stores.within(project.id)
    away.catalog.add_problem(toy_problem())
    away.catalog.add_policy(scripted())
    token = stores.tokens.create(project.id, "away", Scope.ADMIN, created_by="test").token
    api = serve(settings, headers={"Authorization": f"Bearer {token}"})
    body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 40}, "seed_from": [{"run": front}]}
    refused(api.post("/v1/runs", body), 404, "not-found")


def test_retention_deletes_seed_programs_and_names_what_is_missing(lab: Lab, front: str) -> None:
    run = lab.start(30, seed_from=[{"run": front}])
    lab.work()
    seeds = _seeds(lab, run)
    assert prune_runs(lab.stores, -1.0) == 2
    assert {row.program for row in rows_of(lab, f"SELECT program FROM run_seeds WHERE run_id = '{run}'")} == {""}
    assert [seed["origin"] for seed in _seeds(lab, run)] == [seed["origin"] for seed in seeds]
    assert lab.api.get(f"/v1/runs/{run}").json()["seeds"] == len(seeds)
    best = lab.api.get(f"/v1/runs/{front}").json()["best"]["number"]
    with lab.stores.engine.begin() as connection:
        gone = "UPDATE candidates SET program = '' WHERE run_id = :id AND number <> :best"
        connection.execute(sa.text(gone), {"id": front, "best": best})
    body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 30}}
    detail = refused(lab.api.post("/v1/runs", body | {"seed_from": [{"run": front}]}), 422, "invalid-input")["detail"]
    assert "retention deleted it" in detail
    assert f"{front}:best" in detail
    kept = lab.api.post("/v1/runs", body | {"seed_from": [{"run": front, "take": "best"}]})
    assert kept.status_code == 202
