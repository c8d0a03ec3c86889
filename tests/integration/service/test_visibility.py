"""Archive, delete, restore and purge runs, problems and policies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from speciate.client import Client
from speciate.domain.access import Scope
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError
from speciate.domain.visibility import Visibility, VisibilityChange
from speciate.ports.runs import NewRun
from speciate.schema.policies import RunPolicies
from speciate.storage.access.quotas import LockedQuota, lock_quota
from speciate.storage.metrics.overview import Overview
from speciate.storage.runs.purge import PurgeStore
from tests.integration.service.conftest import Lab, refused, scripted
from tests.integration.service.tournament_lab import declare, fair, play, rows_of
from tests.support.runs import toy_problem, toy_spec
from workers.campaigns import CampaignController
from workers.retention import RetentionJob, purge_deleted

__all__ = ["fair"]

pytestmark = pytest.mark.servers

SOON = timedelta(days=1)


def archive(lab: Lab, path: str, status: int = 200) -> Any:
    return _changed(lab, "POST", f"{path}:archive", status)


def delete(lab: Lab, path: str, status: int = 200) -> Any:
    return _changed(lab, "DELETE", path, status)


def restore(lab: Lab, path: str, status: int = 200) -> Any:
    return _changed(lab, "POST", f"{path}:restore", status)


def _changed(lab: Lab, method: str, path: str, status: int) -> Any:
    answer = lab.api.http.request(method, f"/v1/{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


def listed(lab: Lab, path: str, **query: Any) -> list[str]:
    return [item["id"] for item in lab.api.get(f"/v1/{path}", params=query).json()["items"]]


def ended(lab: Lab, **changes: Any) -> UUID:
    run = lab.start(**changes)
    lab.work()
    return run


def records(lab: Lab) -> dict[str, Any]:
    """Return everything that counts runs."""
    found = {
        path: lab.api.get(f"/v1/{path}").json()
        for path in ("runs", "unlocks?limit=500", "unlocks?first=true", "problems/toy/unlocks", "problems/toy/records")
    }
    overview = Overview(lab.stores.engine)
    policy = lab.stores.catalog.policy("scripted").id
    return found | {
        "states": overview.runs_by_state(),
        "latest": overview.latest_unlocks(50),
        "matrix": sorted(overview.matrix(), key=str),
        "policy": overview.policy(policy),
    }


def rows(lab: Lab, run: UUID) -> dict[str, int]:
    """Return the number of rows of a run by table."""
    tables = ("candidates", "rollouts", "events", "work", "elites", "claims", "results", "run_progress")
    return {table: len(rows_of(lab, f"SELECT 1 FROM {table} WHERE run_id = '{run}'")) for table in tables}


def purge(lab: Lab) -> int:
    return PurgeStore(lab.stores.engine).purge(datetime.now(UTC) + SOON, datetime.now(UTC) + SOON, "test")


def test_archived_run_is_hidden_and_still_counts(lab: Lab) -> None:
    run, other = ended(lab, seed=1), ended(lab, seed=2)
    before = records(lab)
    answer = archive(lab, f"runs/{run}")
    assert answer["archived_at"]
    assert answer["deleted_at"] is None
    assert archive(lab, f"runs/{run}")["archived_at"] == answer["archived_at"]
    assert listed(lab, "runs") == [str(other)]
    assert listed(lab, "runs", visibility="archived") == [str(run)]
    assert listed(lab, "runs", visibility="all") == [str(other), str(run)]
    assert listed(lab, "runs", visibility="deleted") == []
    after = records(lab)
    assert {name for name in before if before[name] != after[name]} == {"runs", "states"}
    assert lab.api.get(f"/v1/runs/{run}/candidates").status_code == 200
    restore(lab, f"runs/{run}")
    restored = records(lab)
    changed = restored["runs"]["items"][1].pop("revision") - before["runs"]["items"][1].pop("revision")
    assert changed == 3
    assert restored == before


def test_deleted_run_counts_nowhere_until_it_is_restored(lab: Lab) -> None:
    alone = ended(lab, seed=1)
    before = records(lab)
    run = ended(lab, seed=2)
    both = records(lab)
    assert {name for name in before if before[name] == both[name]} <= {"problems/toy/records", "unlocks?first=true"}
    answer = delete(lab, f"runs/{run}")
    assert answer["deleted_at"]
    assert records(lab) == before
    assert listed(lab, "runs", visibility="deleted") == [str(run)]
    # It can be read until it is purged.
    assert lab.api.get(f"/v1/runs/{run}").json()["deleted_at"] == answer["deleted_at"]
    assert lab.api.get(f"/v1/runs/{run}/unlocks").json()["items"]
    assert len(lab.api.get(f"/v1/runs/{run}/export").text.splitlines()) == 13
    refused(lab.api.post(f"/v1/runs/{run}:archive"), 409, "conflict")
    restore(lab, f"runs/{run}")
    restored = records(lab)
    for found in (restored, both):
        assert found["runs"]["items"][0].pop("revision")
    assert restored == both
    assert str(alone) in listed(lab, "runs")


def test_restore_undoes_the_last_step(lab: Lab) -> None:
    run = ended(lab)
    archived = archive(lab, f"runs/{run}")["archived_at"]
    delete(lab, f"runs/{run}")
    assert listed(lab, "runs", visibility="archived") == []
    back = restore(lab, f"runs/{run}")
    assert (back["archived_at"], back["deleted_at"]) == (archived, None)
    back = restore(lab, f"runs/{run}")
    assert (back["archived_at"], back["deleted_at"]) == (None, None)
    assert restore(lab, f"runs/{run}")["archived_at"] is None


@pytest.mark.parametrize("verb", ["archive", "delete"])
def test_run_must_have_ended(lab: Lab, verb: str) -> None:
    run = lab.start(50)
    change = archive if verb == "archive" else delete
    lab.work(2)
    detail = change(lab, f"runs/{run}", 409)["detail"]
    assert "running" in detail
    assert "Cancel it first." in detail
    lab.api.post(f"/v1/runs/{run}:pause")
    assert "paused" in change(lab, f"runs/{run}", 409)["detail"]
    lab.api.post(f"/v1/runs/{run}:cancel")
    change(lab, f"runs/{run}")


def test_change_respects_the_etag(lab: Lab) -> None:
    run = ended(lab)
    tag = lab.api.get(f"/v1/runs/{run}").headers["etag"]
    lab.api.http.patch(f"/v1/runs/{run}", json={"name": "mine"})
    refused(lab.api.http.request("DELETE", f"/v1/runs/{run}", headers={"If-Match": tag}), 412, "precondition-failed")
    assert lab.api.get(f"/v1/runs/{run}").json()["deleted_at"] is None


def test_runs_of_tournaments_and_campaigns_cannot_be_deleted(fair: Lab) -> None:
    declare(fair)
    play(fair)
    campaign = {"slug": "sweep", "problems": ["toy"], "policy": "good", "evaluations": 8, "slice": 4}
    assert fair.api.post("/v1/campaigns", campaign).status_code == 202
    while fair.stores.campaigns.pending():
        CampaignController().run(fair.stores)
        fair.work()
    report = fair.api.get("/v1/tournaments/first/report").json()
    of_tournament = rows_of(fair, "SELECT run_id FROM tournament_runs LIMIT 1")[0].run_id
    of_campaign = rows_of(fair, "SELECT run_id FROM campaign_runs LIMIT 1")[0].run_id
    assert "tournament first" in delete(fair, f"runs/{of_tournament}", 409)["detail"]
    assert "campaign sweep" in delete(fair, f"runs/{of_campaign}", 409)["detail"]
    archive(fair, f"runs/{of_tournament}")
    for path, names in (("problems/toy", ("tournament first", "campaign sweep")), ("policies/good", ("sweep",))):
        detail = delete(fair, path, 409)["detail"]
        assert all(name in detail for name in names), detail
    for path in ("problems/toy", "policies/good"):
        archive(fair, path)
    assert fair.api.get("/v1/tournaments/first/report").json() == report


def test_declared_tournament_goes_on_with_archived_versions(fair: Lab) -> None:
    declare(fair)
    for path in ("problems/toy", "policies/good"):
        archive(fair, path)
    play(fair)
    assert fair.api.get("/v1/tournaments/first").json()["state"] == "completed"


def test_reference_by_an_undone_plan_prevents_deletion(fair: Lab) -> None:
    declare(fair)
    assert not rows_of(fair, "SELECT FROM tournament_runs WHERE run_id IS NOT NULL")
    assert "tournament first" in delete(fair, "policies/bad", 409)["detail"]
    assert "tournament first" in delete(fair, "problems/toy-b", 409)["detail"]


@pytest.mark.parametrize("hide", [archive, delete])
def test_new_work_on_hidden_versions_is_refused(lab: Lab, hide: Any) -> None:
    lab.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "spare"}))
    lab.stores.catalog.add_policy(scripted(slug="other"))
    lab.stores.catalog.add_policy(scripted(slug="second"))
    hide(lab, "problems/spare")
    hide(lab, "policies/other")
    budget = {"evaluations": 9}
    good = {"problem": "toy", "policy": "scripted", "budget": budget}
    entrants = [{"name": n, "policy": p, "strategy": "best_of_n"} for n, p in (("a", "scripted"), ("b", "second"))]
    tournament = {"slug": "t", "problems": ["toy"], "entrants": entrants, "baseline": "a", "seeds": [1]}
    tournament |= {"budget": budget}
    campaign = {"slug": "c", "problems": ["toy"], "policy": "scripted", "evaluations": 20, "slice": 4}
    bad = [
        ("runs", good | {"problem": "spare"}),
        ("runs", good | {"policy": "other"}),
        ("runs", good | {"mutator": "other"}),
        ("runs", good | {"policy": {"scripted": 1, "other": 1}}),
        ("tournaments", tournament | {"problems": ["spare"]}),
        ("tournaments", tournament | {"slug": "u", "entrants": [entrants[0], entrants[1] | {"policy": "other"}]}),
        ("campaigns", campaign | {"problems": ["toy", "spare"]}),
        ("campaigns", campaign | {"slug": "d", "policy": "other"}),
        ("problem-sets", {"slug": "s", "problems": ["spare"]}),
    ]
    for path, body in bad:
        detail = refused(lab.api.post(f"/v1/{path}", body), 409, "conflict")["detail"]
        assert "spare@1 is " in detail or "other@1 is " in detail
        assert "Restore it first, or choose another." in detail
    for path in ("problems/spare", "policies/other"):
        restore(lab, path)
    for path, body in bad:
        assert lab.api.post(f"/v1/{path}", body).status_code < 300, body


def test_repeated_request_returns_its_run_after_archiving(lab: Lab) -> None:
    body = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 9}}
    first = lab.api.post("/v1/runs", body, headers={"Idempotency-Key": "k"}).json()["id"]
    archive(lab, "problems/toy")
    assert lab.api.post("/v1/runs", body, headers={"Idempotency-Key": "k"}).json()["id"] == first


def test_name_without_version_prefers_visible_versions(lab: Lab) -> None:
    lab.stores.catalog.add_problem(toy_problem(confirmations=2))
    lab.stores.catalog.add_problem(toy_problem(confirmations=3))

    def newest() -> int:
        return int(lab.api.get("/v1/problems/toy").json()["version"])

    assert newest() == 3
    delete(lab, "problems/toy@3")
    archive(lab, "problems/toy@2")
    assert newest() == 1
    assert len(listed(lab, "problems")) == 1
    assert len(listed(lab, "problems/toy/versions", visibility="all")) == 3
    assert lab.api.get("/v1/problems/toy@3").json()["deleted_at"]
    # Without a version: all of them.
    assert [item["version"] for item in archive(lab, "problems/toy")["items"]] == [2, 1]
    assert newest() == 2
    assert listed(lab, "problems") == []
    # Each undoes its own last step.
    assert [bool(item["deleted_at"]) for item in restore(lab, "problems/toy")["items"]] == [False] * 3
    assert newest() == 3
    refused(lab.api.post("/v1/problems/toy@9:archive"), 404, "not-found")
    refused(lab.api.http.delete("/v1/policies/none"), 404, "not-found")


def test_adding_a_definition_again_restores_it(lab: Lab) -> None:
    for hide in (archive, delete):
        for path in ("problems/toy", "policies/scripted"):
            hide(lab, path)
        assert lab.stores.catalog.add_problem(toy_problem())[1] is False
        lab.stores.catalog.add_policy(scripted())
        assert (len(listed(lab, "problems")), len(listed(lab, "policies"))) == (1, 1)


def test_versions_with_runs_cannot_be_deleted(lab: Lab) -> None:
    run = ended(lab)
    for path in ("problems/toy", "policies/scripted"):
        detail = delete(lab, path, 409)["detail"]
        assert f"in use: run {run}." in detail
        assert "archive it instead" in detail
    delete(lab, f"runs/{run}")
    for path in ("problems/toy", "policies/scripted"):
        delete(lab, path)
    detail = restore(lab, f"runs/{run}", 409)["detail"]
    assert "problem toy@1 is deleted" in detail
    restore(lab, "problems/toy")
    assert "policy scripted@1 is deleted" in restore(lab, f"runs/{run}", 409)["detail"]
    restore(lab, "policies/scripted")
    restore(lab, f"runs/{run}")
    assert listed(lab, "runs") == [str(run)]


def test_ensemble_members_and_sets_count_as_references(lab: Lab) -> None:
    for slug in ("one", "two", "three"):
        lab.stores.catalog.add_policy(scripted(slug=slug))
    run = ended(lab, policy={"one": 1, "two": 1}, mutator="three")
    for slug in ("one", "two", "three"):
        assert f"run {run}" in delete(lab, f"policies/{slug}", 409)["detail"]
    lab.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "spare"}))
    assert lab.api.post("/v1/problem-sets", {"slug": "s", "problems": ["spare"]}).status_code == 201
    assert "in use: problem set s." in delete(lab, "problems/spare", 409)["detail"]


def test_deleted_results_are_not_reused(lab: Lab) -> None:
    first = ended(lab, seed=3, reuse_results=True)
    assert lab.api.get(f"/v1/runs/{ended(lab, seed=3, reuse_results=True)}").json()["reused"] > 0
    for run in listed(lab, "runs"):
        delete(lab, f"runs/{run}")
    assert lab.api.get(f"/v1/runs/{ended(lab, seed=3, reuse_results=True)}").json()["reused"] == 0
    restore(lab, f"runs/{first}")
    assert lab.api.get(f"/v1/runs/{ended(lab, seed=3, reuse_results=True)}").json()["reused"] > 0


def test_deleted_runs_count_towards_quotas(lab: Lab) -> None:
    run = ended(lab)
    used = lab.api.get("/v1/projects/default").json()["used"]
    delete(lab, f"runs/{run}")
    assert lab.api.get("/v1/projects/default").json()["used"] == used
    assert used["evaluations"] == 13


def test_purge_removes_every_row_and_nothing_else(lab: Lab) -> None:
    gone, kept = ended(lab, seed=1, reuse_results=True), ended(lab, seed=2)
    hidden = ended(lab, seed=3)
    archive(lab, f"runs/{hidden}")
    before = {run: rows(lab, run) for run in (kept, hidden)}
    assert all(rows(lab, gone).values())
    assert purge(lab) == 0
    delete(lab, f"runs/{gone}")
    assert purge(lab) == 1
    assert not any(rows(lab, gone).values())
    assert {run: rows(lab, run) for run in (kept, hidden)} == before
    refused(lab.api.get(f"/v1/runs/{gone}"), 404, "not-found")
    refused(lab.api.post(f"/v1/runs/{gone}:restore"), 404, "not-found")
    orphans = "SELECT FROM prompts WHERE digest NOT IN (SELECT prompt_digest FROM rollouts)"
    assert not rows_of(lab, orphans)
    for rollout in lab.api.get(f"/v1/runs/{kept}/rollouts").json()["items"]:
        assert lab.api.get(f"/v1/rollouts/{rollout['id']}").json()["user"] != "(pruned)"
    entries = [entry for entry in lab.api.get("/v1/audit").json()["items"] if entry["principal"] == "test"]
    assert [(entry["action"], entry["object"]) for entry in entries] == [("PURGE run", str(gone))]


def test_purge_removes_the_keys_of_the_proposals_of_a_run(lab: Lab) -> None:
    gone, kept = (lab.start(policy="external", seed=seed) for seed in (1, 2))
    lab.work()
    for run in (gone, kept):
        sent = {"proposals": [{"program": "x = 1\ny = 2\n"}]}
        path = f"/v1/runs/{run}/proposals"
        assert lab.api.post(path, sent, headers={"Idempotency-Key": "k"}).status_code == 200
    lab.api.post(f"/v1/runs/{gone}:cancel")
    delete(lab, f"runs/{gone}")
    assert purge(lab) == 1
    keys = [key for (key,) in rows_of(lab, "SELECT key FROM idempotency_keys")]
    assert [str(kept) in key for key in keys] == [True]


def test_purge_waits_for_its_time(lab: Lab) -> None:
    run = ended(lab)
    delete(lab, f"runs/{run}")
    assert purge_deleted(lab.stores, 1.0) == 0
    restore(lab, f"runs/{run}")
    with lab.stores.engine.begin() as connection:
        connection.execute(text("UPDATE runs SET deleted_at = now() - interval '31 days'"))
    job = RetentionJob()
    job.run(lab.stores, None, 0.0, 0.0)
    assert job._thread is None
    job.run(lab.stores, None, 0.0, 30.0)
    assert job._thread is not None
    job._thread.join(30)
    refused(lab.api.get(f"/v1/runs/{run}"), 404, "not-found")


def test_restored_run_is_not_purged(lab: Lab) -> None:
    run = ended(lab)
    delete(lab, f"runs/{run}")
    store = PurgeStore(lab.stores.engine)
    restore(lab, f"runs/{run}")
    before = rows(lab, run)
    assert not store._remove("run", run, datetime.now(UTC) + SOON, "test")
    assert rows(lab, run) == before


def test_purge_takes_versions_and_their_keys(lab: Lab) -> None:
    run = ended(lab)
    for path in (f"runs/{run}", "problems/toy", "policies/scripted"):
        delete(lab, path)
    with lab.stores.engine.begin() as connection:
        connection.execute(text("INSERT INTO policy_keys (id, sealed) VALUES ('mine', 'x'), ('yours', 'x')"))
        add = text("UPDATE policies SET definition = jsonb_set(definition, '{api_key_id}', '\"mine\"')")
        connection.execute(add)
    assert purge(lab) == 3
    assert rows_of(lab, "SELECT id FROM policy_keys") == [("yours",)]
    for path in ("problems/toy", "policies/scripted"):
        refused(lab.api.get(f"/v1/{path}"), 404, "not-found")
    assert lab.stores.catalog.add_problem(toy_problem())[1] is True


def test_versions_wait_for_their_runs(lab: Lab) -> None:
    run = ended(lab)
    for path in (f"runs/{run}", "problems/toy", "policies/scripted"):
        delete(lab, path)
    with lab.stores.engine.begin() as connection:
        connection.execute(text("UPDATE problems SET deleted_at = now() - interval '2 days'"))
    now = datetime.now(UTC)
    assert PurgeStore(lab.stores.engine).purge(now - SOON, now, "test") == 0
    restore(lab, "problems/toy")


def test_changes_are_audited(lab: Lab) -> None:
    run = ended(lab)
    archive(lab, f"runs/{run}")
    delete(lab, f"runs/{run}")
    restore(lab, f"runs/{run}")
    archive(lab, "problems/toy@1")
    found = [(e["action"], e["object"], e["status"]) for e in lab.api.get("/v1/audit").json()["items"][:4]]
    assert found == [
        ("POST /v1/problems/{name}:archive", "name=toy@1", 200),
        ("POST /v1/runs/{run_id}:restore", f"run_id={run}", 200),
        ("DELETE /v1/runs/{run_id}", f"run_id={run}", 200),
        ("POST /v1/runs/{run_id}:archive", f"run_id={run}", 200),
    ]


def test_client_archives_deletes_and_restores(lab: Lab) -> None:
    run = ended(lab)
    with Client(str(lab.api.http.base_url)) as client:
        assert client.runs.archive(run).record.archived_at is not None
        assert [each.id for each in client.runs.list()] == []
        assert [each.id for each in client.runs.list(visibility="archived")] == [run]
        assert client.runs.delete(run).record.deleted_at is not None
        assert client.runs.restore(run).record.deleted_at is None
        assert [each.version for each in client.problems.archive("toy")] == [1]
        assert [*client.problems.list()] == []
        assert len([*client.problems.list("toy", visibility=Visibility.ALL)]) == 1
        assert [each.name for each in client.policies.archive("scripted")] == ["scripted@1"]
        assert client.policies.restore("scripted")[0].archived_at is None
        with pytest.raises(ConflictError):
            client.policies.delete("scripted")
        with pytest.raises(NotFoundError):
            client.runs.delete(UUID(int=7))


def test_a_name_means_the_visible_run_with_it_and_to_restore_the_hidden_one(lab: Lab) -> None:
    first, second = ended(lab, name="baseline"), ended(lab, name="baseline")
    with Client(str(lab.api.http.base_url)) as client:
        with pytest.raises(InvalidInputError, match="matches 2 runs"):
            client.runs.archive("baseline")
        assert client.runs.archive(second).id == second
        assert client.runs.get("baseline").id == client.runs.delete("Baseline").id == first
        with pytest.raises(InvalidInputError, match="matches 2 runs"):
            client.runs.restore("baseline")
        assert client.runs.restore(str(second)[-8:]).id == second
        assert client.runs.get("baseline").id == second
        assert client.runs.restore("baseline").record.deleted_at is None
        with pytest.raises(InvalidInputError, match="expected a name or an id"):
            client.runs.delete("")


def test_other_projects_objects_are_absent(lab: Lab) -> None:
    run = ended(lab)
    project = lab.stores.projects.create("away")
    away = lab.stores.within(project.id)
    for change in VisibilityChange:
        with pytest.raises(NotFoundError):
            away.catalog.change_problem(lab.stores.catalog.problem("toy").id, change)
        with pytest.raises(NotFoundError):
            away.catalog.change_policy("scripted", change)
    token = lab.stores.tokens.create(project.id, "t", Scope.ADMIN, created_by="test")
    answer = lab.api.http.delete(f"/v1/runs/{run}", headers={"Authorization": f"Bearer {token.token}"})
    refused(answer, 404, "not-found")


def test_deletion_waits_for_a_run_that_starts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, runs = lab.stores.catalog, lab.stores.runs
    problem, policy = catalog.problem("toy"), catalog.policy("scripted")
    checked, go_on = Event(), Event()

    def slow_quota(*arguments: Any) -> LockedQuota:
        checked.set()
        assert go_on.wait(30)
        return lock_quota(*arguments)

    with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
        patch.setattr("speciate.storage.runs.store.lock_quota", slow_quota)
        created = pool.submit(runs.create, NewRun(problem, RunPolicies(policy), toy_spec(9)))
        assert checked.wait(30)
        deleted = pool.submit(catalog.change_problem, "toy", VisibilityChange.DELETE)
        assert not wait([deleted], timeout=0.5).done
        go_on.set()
        run_id, _ = created.result(30)
        with pytest.raises(ConflictError, match=f"in use: run {run_id}"):
            deleted.result(30)


def test_nothing_starts_on_a_deleted_version(lab: Lab) -> None:
    catalog, runs = lab.stores.catalog, lab.stores.runs
    problem, policy = catalog.problem("toy"), catalog.policy("scripted")
    catalog.change_problem("toy", VisibilityChange.DELETE)
    for own in (True, False):  # the second is a run of a tournament or campaign
        with pytest.raises(ConflictError, match="problem toy@1 is deleted"):
            replace(runs, own=own).create(NewRun(problem, RunPolicies(policy), toy_spec(9)))
