"""Pruning deletes texts of ended runs and keeps the record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import column, delete, insert, table, text
from sqlalchemy.exc import DBAPIError

from speciate.cli.runs.replay import replay_run
from speciate.domain.errors import ReplayError, UnavailableError
from speciate.domain.run import RunState
from speciate.ids import floor7
from speciate.storage.runs.retention import UNSUCCESSFUL, RetentionStore
from speciate.storage.stores import Stores
from tests.integration.service.conftest import Lab, scripted
from tests.integration.service.test_external_evaluation import external, work
from tests.integration.service.tournament_lab import declare, fair, play, report_of, rows_of
from tests.support.runs import ToyEvaluator
from workers.retention import RetentionJob, prune_runs

__all__ = ["fair"]

pytestmark = pytest.mark.servers

SOON = timedelta(days=1)
AUDIT = table("audit", *map(column, ("id", "at", "principal", "action", "object", "address", "status")))


def _record(lab: Lab, runs: list[UUID]) -> dict[str, Any]:
    """Everything that stays, as readers see it."""
    found: dict[str, Any] = {"unlocks": lab.api.get("/v1/unlocks?limit=500").json(), "report": report_of(lab)}
    for run in runs:
        found[f"run {run}"] = {**lab.api.get(f"/v1/runs/{run}").json(), "pruned_at": None, "revision": None}
        for what in ("events", "candidates", "rollouts", "front", "archive"):
            found[f"{what} {run}"] = lab.api.get(f"/v1/runs/{run}/{what}?limit=500").json()
    return found


def _texts(lab: Lab) -> list[Any]:
    return rows_of(lab, "SELECT run_id, number, program FROM candidates ORDER BY run_id, number")


def test_pruning_keeps_the_record(fair: Lab) -> None:
    declare(fair)
    play(fair)
    cancelled = fair.start(200, lanes=2, seed=1)
    fair.work(24)
    fair.stores.signals.committed(fair.stores.runs.cancel(cancelled))
    living = fair.start(200, seed=2)
    fair.work(6)
    ended = [run.id for run in fair.stores.runs.list(limit=500).items if run.state.ended]
    before, texts = _record(fair, ended), _texts(fair)
    prompts = rows_of(fair, "SELECT digest FROM prompts")
    kept = {
        (row.run_id, row.number)
        for row in rows_of(fair, "SELECT run_id, number FROM claims UNION SELECT run_id, number FROM elites")
    }
    retention, now = RetentionStore(fair.stores.engine), datetime.now(UTC)

    # Nothing is old enough; then only what is dead; then all that has ended.
    assert retention.prunable(now - SOON) == ()
    assert [run.run_id for run in retention.prunable(now + SOON)] == [cancelled]
    found = retention.prunable(now + SOON, (*UNSUCCESSFUL, RunState.COMPLETED))
    assert {run.run_id for run in found} == set(ended)
    assert all(run.bytes > 0 for run in found)
    # Prompts of this very moment may still be needed by what is being inserted: seen from an hour later they are not.
    retention.prune(found, now + timedelta(hours=1))

    assert _record(fair, ended) == before
    assert retention.prunable(now + SOON, tuple(RunState)) == ()
    for old, new in zip(texts, _texts(fair), strict=True):
        stays = old.run_id == living or (old.run_id, old.number) in kept
        assert new.program == (old.program if stays else "")
    assert 0 < len(rows_of(fair, "SELECT digest FROM prompts")) < len(prompts)
    # What lost its prompt can still be looked at, and the living run goes on.
    for rollout in fair.api.get(f"/v1/runs/{cancelled}/rollouts?limit=500").json()["items"]:
        assert fair.api.get(f"/v1/rollouts/{rollout['id']}").status_code == 200
    fair.stores.signals.committed(fair.stores.runs.cancel(living))


def test_pruned_run_cannot_be_replayed(lab: Lab) -> None:
    run = lab.start(9)
    lab.work()
    assert replay_run(lab.stores, run, ToyEvaluator()).identical
    assert prune_runs(lab.stores, -1.0) == 1
    with pytest.raises(ReplayError, match=r"was pruned on .* its completions are deleted"):
        replay_run(lab.stores, run, ToyEvaluator())
    assert lab.api.get(f"/v1/runs/{run}").json()["pruned_at"] is not None


def test_pruning_deletes_what_failures_quote_of_answers(lab: Lab) -> None:
    diff = "<<<<<<< SEARCH\nmy secret\n=======\nx = 2\n>>>>>>> REPLACE"
    lab.stores.catalog.add_policy(scripted([diff], slug="talker"))
    run = lab.start(5, policy="talker")
    lab.work()
    query = f"SELECT number FROM candidates WHERE run_id = '{run}' AND program = '' AND failure_detail LIKE '%secret%'"
    assert rows_of(lab, query)
    assert prune_runs(lab.stores, -1.0) == 1
    assert not rows_of(lab, query)


def test_pruning_deletes_handed_out_prompts_and_programs_that_waited_for_an_evaluator(lab: Lab) -> None:
    asked = lab.start(9)
    lab.work(1)
    assert lab.api.post(f"/v1/runs/{asked}:ask", {"count": 1}).json()["items"]
    lab.stores.catalog.add_problem(external(slug="outside"))
    waiting = lab.start(9, problem="outside")
    work(lab)
    stored = "SELECT id FROM asks UNION ALL SELECT id FROM external_evaluations"
    assert len(rows_of(lab, stored)) == 2
    for run in (asked, waiting):
        lab.api.post(f"/v1/runs/{run}:cancel")
    assert prune_runs(lab.stores, -1.0) == 2
    assert rows_of(lab, stored) == []


def test_an_interrupted_pass_is_repeated(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.stores.catalog.add_policy(scripted(["no program"], slug="talker"))
    lab.start(5, policy="talker")
    lab.work()
    retention, later = RetentionStore(lab.stores.engine), datetime.now(UTC) + timedelta(hours=1)

    def interrupt(*_: object) -> None:
        raise UnavailableError("the service stops")

    with monkeypatch.context() as patch:
        patch.setattr(RetentionStore, "_drop_prompts", interrupt)
        with pytest.raises(UnavailableError):
            retention.prune(retention.prunable(later, (RunState.COMPLETED,)), later)
    assert rows_of(lab, "SELECT digest FROM prompts")
    retention.prune(retention.prunable(later, (RunState.COMPLETED,)), later)
    assert not rows_of(lab, "SELECT digest FROM prompts")


def test_audit_retention_is_audited(lab: Lab, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speciate.storage.access.audit._STEP", 2)
    now = datetime.now(UTC)
    for days in (900, 500, 401, 399, 0):
        at = now - timedelta(days=days)
        values = {"id": floor7(at.timestamp()), "at": at, "principal": "x", "object": "", "address": "", "status": 200}
        with stores.engine.begin() as connection:
            connection.execute(insert(AUDIT).values(action=f"{days} days ago", **values))
    assert stores.audit.count_old(now - timedelta(days=400)) == 3
    retention_job = RetentionJob()
    retention_job.run(stores, None, 400.0, 0.0)
    assert retention_job._thread is not None
    retention_job._thread.join(30)
    entries = stores.audit.list(project=None).items
    assert [e.action for e in entries if e.principal == "x"] == ["0 days ago", "399 days ago"]
    told = [e for e in entries if e.action == "DELETE audit"]
    # Two steps, newest first: each is an entry.
    assert [(e.principal, e.object.split(",")[0], e.status) for e in told] == [
        ("retention", "1 entries", 200),
        ("retention", "2 entries", 200),
    ]
    assert (now - timedelta(days=900)).date().isoformat() in told[1].object
    # What says so is an entry as any other, and everybody else is still refused.
    assert stores.audit.delete_old(now - timedelta(days=400), "prune") == 0
    assert len(stores.audit.list(project=None).items) == len(entries)
    with pytest.raises(DBAPIError, match="append-only"), stores.engine.begin() as connection:
        connection.execute(delete(AUDIT))


def test_pruned_results_are_not_reused(lab: Lab) -> None:
    def play() -> UUID:
        run = lab.start(40, reuse_results=True)
        lab.work()
        return run

    first = play()
    retention, now = RetentionStore(lab.stores.engine), datetime.now(UTC)
    retention.prune(retention.prunable(now + SOON, (RunState.COMPLETED,)), now + timedelta(hours=1))
    gone = {row.number for row in rows_of(lab, "SELECT number FROM candidates WHERE program = ''")}
    assert gone
    second = play()
    query = "SELECT artifacts, reused_from FROM candidates WHERE run_id = :id"
    with lab.stores.engine.connect() as connection:
        rows = connection.execute(text(query), {"id": second}).all()
    assert not any("pruned" in row.artifacts for row in rows)
    used = {row.reused_from for row in rows if row.reused_from}
    assert not used & {f"{first}/{number}" for number in gone}
    # What was evaluated again is there for the next one.
    third = play()
    again = rows_of(lab, f"SELECT reused_from FROM candidates WHERE run_id = '{third}' AND reused_from IS NOT NULL")
    assert any(row.reused_from.startswith(str(second)) for row in again)


def test_pruning_is_opt_in(lab: Lab) -> None:
    run = lab.start(5)
    lab.work()
    retention_job = RetentionJob()
    retention_job.run(lab.stores, None, 0.0, 0.0)
    assert retention_job._thread is None
    retention_job.run(lab.stores, 30.0, 0.0, 0.0)
    assert retention_job._thread is not None
    retention_job._thread.join(30)
    assert lab.stores.runs.get(run).pruned_at is None
