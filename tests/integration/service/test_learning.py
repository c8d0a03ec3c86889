"""A run that learns on PostgreSQL: the record, the page, the unlock record, and who wrote which candidate."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from speciate.domain.policy import Policy
from speciate.storage.lookup import read_stored
from speciate.storage.metrics.overview import Overview
from speciate.storage.runs.purge import PurgeStore
from tests.integration.service.conftest import Lab, refused
from tests.unit.runs.test_learning import BASE, FakeLearner, Varied


def test_a_run_that_learns_is_recorded_and_shown(lab: Lab) -> None:
    lab.stores.catalog.add_policy(BASE)
    learning = {"groups": 2, "estimator": "entropic"}
    run = lab.start(161, policy="base", batch=16, samples_per_prompt=8, lanes=1, learning=learning)
    fresh = lab.api.get(f"/v1/runs/{run}").json()["learning"]
    assert (fresh["version"], fresh["step"], fresh["seen"]) == (None, 0, 0)
    learner, client = FakeLearner(), Varied()
    lab.work(client_for=lambda _: client, learner_for=lambda: learner)
    record = lab.api.get(f"/v1/runs/{run}").json()
    assert record["state"] == "completed"
    found, name = record["learning"], f"base-{run.hex[-12:]}"
    assert found["step"] == len(learner.tasks) > 5
    assert found["version"] == f"{name}@{found['step']}"
    assert found["seen"] == 20 == sum(found[key] for key in ("used", "flat", "stale", "dropped", "waiting"))
    assert 0 < found["tokens"] < record["spent"]["tokens"]
    # The version of a step is a policy with its origin, and the candidates name the version that wrote them.
    version = lab.api.get(f"/v1/policies/{name}@2").json()["definition"]
    expected = {
        "base": "base@1",
        "parent": f"{name}@1",
        "run": str(run),
        "step": 2,
        "estimator": "entropic",
        "groups": 2,
        "campaign": None,
    }
    assert version["lineage"] == expected
    overview, catalog = Overview(lab.stores.engine), lab.stores.catalog
    written = [overview.policy(catalog.policy(each).id).rollouts for each in ("base", f"{name}@2")]
    assert min(written) > 0
    with lab.stores.engine.connect() as connection:
        digests = connection.execute(sa.text("SELECT digest, definition FROM policies")).all()
        assert all(digest == read_stored(Policy, definition).digest for digest, definition in digests)
        query = sa.text(
            "SELECT coalesce(a.version, 0), a.slug FROM candidates c JOIN policies a ON a.id = c.policy_id"
            " WHERE c.run_id = :id ORDER BY c.number"
        )
        wrote = [(slug, number) for number, slug in connection.execute(query, {"id": run})]
    assert wrote[0] == ("base", 1)
    assert {slug for slug, _ in wrote[64:]} == {name}
    assert len(Counter(wrote)) > 4
    # The groups of all steps are different.
    events = [
        e for e in lab.api.get(f"/v1/runs/{run}/events?limit=500").json()["items"] if e["kind"] == "learning.step"
    ]
    used = [tuple(group) for event in events for group in event["data"]["groups"]]
    assert len(used) == len(set(used)) == found["used"]
    page = lab.api.get(f"/runs/{run}/learning").text
    assert f"/policies/{name}@{found['step']}" in page
    assert "Learning curve" in page
    assert "Drift of the policy" in page
    assert f"/policies/{wrote[-1][0]}@{wrote[-1][1]}" in lab.api.get(f"/runs/{run}/candidates/161").text
    assert "which began with" in lab.api.get(f"/policies/{name}@2").text
    figure = lab.api.get(f"/runs/{run}/figures/learning.json")
    assert figure.status_code == 200, figure.text
    for name in ("drift", "gap", "age"):
        assert lab.api.get(f"/runs/{run}/figures/{name}.csv").text.count("\n") > 5


def test_an_unlock_names_the_learned_version_and_counts_for_no_version(lab: Lab) -> None:
    lab.stores.catalog.add_policy(BASE)
    run = lab.start(161, policy="base", batch=16, samples_per_prompt=8, lanes=1, learning={"groups": 2})
    client, learner = Varied(), FakeLearner()
    lab.work(client_for=lambda _: client, learner_for=lambda: learner)
    unlocks = lab.api.get(f"/v1/unlocks?run={run}").json()["items"]
    for unlock in unlocks:
        assert (unlock["policy"], unlock["policy_version"], unlock["ensemble"]) == ("base", 1, ["base@1 learning"])
        assert unlock["learned"] is None or unlock["learned"].startswith(f"base-{run.hex[-12:]}@")
    assert lab.api.get("/v1/unlocks?policy=base").json()["items"] == []


def test_runs_that_cannot_learn_are_refused(lab: Lab) -> None:
    body = {"problem": "toy", "policy": "mutator", "budget": {"evaluations": 100}, "learning": {}}
    details = refused(lab.api.post("/v1/runs", json=body), 422, "invalid-input")
    assert "writes no tokens" in details["detail"]
    lab.stores.catalog.add_policy(BASE)
    body |= {"policy": "base", "batch": 16, "samples_per_prompt": 64}
    body["learning"] = {"estimator": "max_at_k", "kappa": 20}
    details = refused(lab.api.post("/v1/runs", json=body), 422, "invalid-input")
    assert "expected less than the 16 completions of a prompt" in details["detail"]


def test_a_learned_version_waits_for_its_run_and_its_name_is_reserved(lab: Lab) -> None:
    lab.stores.catalog.add_policy(BASE)
    run = lab.start(49, policy="base", batch=16, samples_per_prompt=8, lanes=1, learning={"groups": 2})
    client, learner = Varied(), FakeLearner()
    lab.work(client_for=lambda _: client, learner_for=lambda: learner)
    name = f"base-{run.hex[-12:]}"
    definition = lab.api.get(f"/v1/policies/{name}@1").json()["definition"]
    details = refused(lab.api.post("/v1/policies", {"definition": definition}), 422, "invalid-input")
    assert "runs that learn set it" in details["detail"]
    fresh = {"slug": name, "kind": "program_mutator"}
    details = refused(lab.api.post("/v1/policies", {"definition": fresh}), 409, "conflict")
    assert "would take its next number" in details["detail"]
    details = refused(lab.api.http.delete(f"/v1/policies/{name}@1"), 409, "conflict")
    assert f"in use: run {run}" in details["detail"]
    for path in (f"runs/{run}", f"policies/{name}"):
        assert lab.api.http.delete(f"/v1/{path}").status_code == 200
    with lab.stores.engine.begin() as connection:
        old = sa.text("UPDATE policies SET deleted_at = now() - interval '2 days' WHERE slug = :name")
        connection.execute(old, {"name": name})
    now = datetime.now(UTC)
    purge = PurgeStore(lab.stores.engine)
    assert purge.purge(now - timedelta(days=1), now, "test") == 0  # the run can still be restored
    later = now + timedelta(days=1)
    assert purge.purge(later, later, "test") == 1 + len(learner.tasks)
