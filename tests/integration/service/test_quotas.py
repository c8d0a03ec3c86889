"""Quotas of projects."""

from __future__ import annotations

from typing import Any

import pytest

from speciate.domain.campaign import WAITS_FOR_GRANT
from speciate.domain.errors import QuotaExceededError
from speciate.domain.run import RunState
from speciate.ports.runs import NewRun
from speciate.schema.policies import RunPolicies
from tests.integration.service.conftest import Lab, refused
from tests.integration.service.tournament_lab import body as tournament
from tests.integration.service.tournament_lab import declare, fair, play
from tests.support.runs import toy_spec
from workers.campaigns import CampaignController
from workers.declarations import WAITS_FOR_QUOTA
from workers.tournaments import TournamentController

__all__ = ["fair"]
pytestmark = pytest.mark.servers


def limit(lab: Lab, **quota: int | None) -> None:
    answer = lab.api.post("/v1/projects/default:quota", quota)
    assert answer.status_code == 200, answer.text


def used(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = lab.api.get("/v1/projects/default").json()["used"]
    return found


def run(evaluations: int | None = 13, **budget: float) -> dict[str, Any]:
    limits = {"evaluations": evaluations, **budget}
    return {"problem": "toy", "policy": "scripted", "budget": limits, "lanes": 1, "batch": 4}


def test_a_project_of_the_access_page_has_the_built_in_policies(lab: Lab) -> None:
    lab.api.post("/v1/projects", {"slug": "by-api"})
    assert lab.send_form("/access/projects", {"slug": "by-page"}).status_code == 303
    listed = [
        [policy["definition"]["slug"] for policy in lab.api.get("/v1/policies", headers=headers).json()["items"]]
        for headers in ({"Speciate-Project": "by-api"}, {"Speciate-Project": "by-page"})
    ]
    assert listed[0] == listed[1] != []


def test_declared_budgets_count_in_full_until_the_run_ends(lab: Lab) -> None:
    limit(lab, evaluations_per_day=30)
    first = lab.start(13)
    assert used(lab)["evaluations"] == 13
    details = refused(lab.api.post("/v1/runs", run(18)), 403, "quota-exceeded")["detail"]
    assert "30 evaluations a day" in details
    assert "13 are declared or spent today, 17 are left, this requests 18" in details
    assert "The day ends at 2" in details
    details = refused(lab.api.post("/v1/runs", run(None, seconds=60.0)), 403, "quota-exceeded")["detail"]
    assert "campaigns" not in details
    lab.start(17)
    refused(lab.api.post("/v1/runs", run(1)), 403, "quota-exceeded")
    lab.api.post(f"/v1/runs/{first}:cancel")
    assert used(lab)["evaluations"] == 17
    lab.work()
    assert used(lab)["evaluations"] == 17
    limit(lab, evaluations_per_day=None)
    lab.start(1000)


def test_a_huge_declaration_counts_without_overflow(fair: Lab) -> None:
    limit(fair, evaluations_per_day=10**9)
    for slug in ("first", "second"):
        declare(fair, slug=slug, seeds=[*range(1000)], budget={"evaluations": 10, "tokens": 10**15})
    assert used(fair)["tokens"] == 2**63 - 1


def test_repeated_request_counts_once(lab: Lab) -> None:
    limit(lab, evaluations_per_day=13, concurrent_runs=1)
    key = {"Idempotency-Key": "k"}
    first = lab.api.post("/v1/runs", run(13), headers=key).json()["id"]
    assert lab.api.post("/v1/runs", run(13), headers=key).json()["id"] == first


def test_token_quota(lab: Lab) -> None:
    limit(lab, tokens_per_day=1000)
    assert "no budget of tokens" in refused(lab.api.post("/v1/runs", run(13)), 403, "quota-exceeded")["detail"]
    assert lab.api.post("/v1/runs", run(13, tokens=900)).status_code == 202
    refused(lab.api.post("/v1/runs", run(13, tokens=200)), 403, "quota-exceeded")
    assert used(lab)["tokens"] == 900


def test_concurrent_runs_are_limited_and_started_later(fair: Lab) -> None:
    limit(fair, concurrent_runs=2)
    first, _ = fair.start(), fair.start()
    details = refused(fair.api.post("/v1/runs", run()), 403, "quota-exceeded")["detail"]
    assert "may have 2 runs under way at once and has 2" in details
    assert fair.api.post(f"/v1/runs/{first}:pause").status_code == 200
    third = fair.start()
    refused(fair.api.post(f"/v1/runs/{first}:resume"), 403, "quota-exceeded")
    fair.api.post(f"/v1/runs/{third}:cancel")
    assert fair.api.post(f"/v1/runs/{first}:resume").status_code == 200
    fair.work()
    limit(fair, concurrent_runs=1)
    declare(fair)
    most = 0
    controller, told = TournamentController(), set()
    for _ in range(60):
        controller.run(fair.stores)
        told.add(fair.api.get("/v1/tournaments/first").json()["reason"])
        most = max(most, used(fair)["concurrent_runs"])
        fair.work(2)
        if not fair.stores.tournaments.pending():
            break
    assert most == 1
    assert told == {WAITS_FOR_QUOTA, None}
    assert fair.api.get("/v1/tournaments/first").json()["state"] == "completed"


def test_slice_grant_counts_towards_the_quota(lab: Lab) -> None:
    stored, policy = lab.stores.catalog.problem("toy"), lab.stores.catalog.policy("scripted")
    waiting, _ = lab.stores.runs.create(NewRun(stored, RunPolicies(policy), toy_spec(10), granted=2))
    lab.stores.signals.committed(lab.stores.runs.start(waiting))
    lab.work()
    assert lab.stores.runs.get(waiting).reason == WAITS_FOR_GRANT
    limit(lab, concurrent_runs=1)
    under_way = lab.start()
    with pytest.raises(QuotaExceededError):
        lab.stores.runs.grant(waiting, 4)
    assert lab.stores.runs.get(waiting).granted == 2
    lab.api.post(f"/v1/runs/{under_way}:cancel")
    lab.stores.signals.committed(lab.stores.runs.grant(waiting, 4))
    assert lab.stores.runs.get(waiting).state is RunState.RUNNING


def test_tournament_quota(fair: Lab) -> None:
    limit(fair, evaluations_per_day=100)
    declare(fair)  # 3 problems, 2 entrants, 2 seeds, 7 evaluations
    assert used(fair)["evaluations"] == 84
    refused(fair.api.post("/v1/tournaments", tournament(slug="second")), 403, "quota-exceeded")
    more = {"seeds": [5], "reason": "closer"}
    refused(fair.api.post("/v1/tournaments/first:extend", more), 403, "quota-exceeded")
    play(fair)
    spent = sum(r["spent"]["evaluations"] for r in fair.api.get("/v1/runs").json()["items"])
    assert used(fair)["evaluations"] == spent <= 84
    limit(fair, evaluations_per_day=spent + 42)
    assert fair.api.post("/v1/tournaments/first:extend", more).status_code == 200
    assert used(fair)["evaluations"] == spent + 42


def test_campaign_quota(fair: Lab) -> None:
    limit(fair, evaluations_per_day=61, concurrent_runs=1)
    body = {
        "slug": "c", "problems": ["toy", "toy-b", "toy-c"], "policy": "good", "strategy": "best_of_n",
        "batch": 2, "samples_per_prompt": 1, "evaluations": 60, "slice": 5, "parallel": 3,
    }  # fmt: skip
    assert fair.api.post("/v1/campaigns", body).status_code == 202
    assert used(fair)["evaluations"] == 60
    refused(fair.api.post("/v1/runs", run(2)), 403, "quota-exceeded")
    most, controller = 0, CampaignController()
    for _ in range(200):
        controller.run(fair.stores)
        most = max(most, used(fair)["concurrent_runs"])
        fair.work(2)
        if not fair.stores.campaigns.pending():
            break
    assert most == 1
    found = fair.api.get("/v1/campaigns/c").json()
    assert found["state"] == "completed"
    assert used(fair)["evaluations"] == found["spent"]
