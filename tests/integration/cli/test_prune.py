"""``speciate prune``: preview, confirmation and dry run."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import column, insert, table

from speciate.cli.app import app
from speciate.cli.errors import ExitCode
from speciate.domain.errors import NotFoundError
from speciate.domain.policy import Policy
from speciate.domain.visibility import VisibilityChange
from speciate.ids import floor7
from speciate.runs.executor import LocalQueue
from speciate.runs.start import prepare_run, start_run
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.stores import Stores
from tests.support.runs import toy_problem, toy_spec

pytestmark = pytest.mark.servers

Call = Callable[..., tuple[int, str, str]]
AUDIT = table("audit", *map(column, ("id", "at", "principal", "action", "object", "address", "status")))


@pytest.fixture
def prune(settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    assert settings.database_url is not None
    assert settings.redis_url is not None
    monkeypatch.setenv("SPECIATE_DATABASE_URL", settings.database_url.get_secret_value())
    monkeypatch.setenv("SPECIATE_REDIS_URL", settings.redis_url.get_secret_value())

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(["prune", "--older-than", "0", *words], prog_name="speciate")
        captured = capfd.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def _cancelled(stores: Stores) -> UUID:
    problem, _ = stores.catalog.add_problem(toy_problem())
    policy, _ = stores.catalog.add_policy(Policy(slug="numbers", kind="scripted", options={"template": "x = 1"}))
    run_id, _ = start_run(
        stores.runs,
        LocalQueue(),
        prepare_run(stores.runs, problem=problem, policies=RunPolicies(policy), spec=toy_spec(strategy="best_of_n")),
    )
    stores.signals.committed(stores.runs.cancel(run_id))
    return run_id


def _old_entry(stores: Stores) -> None:
    at = datetime.now(UTC) - timedelta(days=406)
    values = {"id": floor7(at.timestamp()), "at": at, "principal": "x", "action": "", "object": "", "address": ""}
    with stores.engine.begin() as connection:
        connection.execute(insert(AUDIT).values(status=200, **values))


def test_preview_confirmation_and_pruning(stores: Stores, prune: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = prune("--dry-run")
    assert (code, out) == (ExitCode.OK, "")
    assert "No run is old enough" in err
    run_id = _cancelled(stores)
    _old_entry(stores)

    code, out, _ = prune("--dry-run", "--json")
    assert (code, json.loads(out)) == (ExitCode.OK, {"runs": 1, "bytes": 0, "audit": 1, "removed": 0, "pruned": False})
    code, out, err = prune()
    assert code == ExitCode.INVALID
    assert str(run_id) in out
    assert "Pass --yes" in err
    assert stores.runs.get(run_id).pruned_at is None

    code, out, _ = prune("--yes")
    assert code == ExitCode.OK
    assert "Pruned 1 run, deleted 1 audit log entry" in out
    (entry,) = stores.audit.list(project=None).items
    assert (entry.principal, entry.action, entry.object.split(",")[0]) == ("prune", "DELETE audit", "1 entries")
    _old_entry(stores)
    monkeypatch.setenv("SPECIATE_AUDIT_DAYS", "0")
    assert "No run is old enough" in prune("--dry-run")[2]
    monkeypatch.setenv("SPECIATE_AUDIT_DAYS", "410")
    assert json.loads(prune("--dry-run", "--json")[1])["audit"] == 0
    assert json.loads(prune("--yes", "--json", "--audit-older-than", "405")[1])["audit"] == 1
    assert stores.runs.get(run_id).pruned_at is not None
    assert prune("--yes", "--completed", "--json")[0] == ExitCode.OK


def test_deleted_objects_are_removed(stores: Stores, prune: Call) -> None:
    run_id = _cancelled(stores)
    stores.runs.change_visibility(run_id, VisibilityChange.DELETE)
    stores.catalog.change_problem("toy", VisibilityChange.DELETE)
    assert json.loads(prune("--dry-run", "--json")[1])["removed"] == 0
    at_once = ("--deleted-older-than", "0")
    code, out, _ = prune("--dry-run", *at_once)
    assert code == ExitCode.OK
    assert "to remove for good: 1" in out
    assert stores.runs.get(run_id).deleted_at is not None
    _, out, _ = prune("--yes", *at_once)
    assert "removed 2 deleted objects" in out
    with pytest.raises(NotFoundError):
        stores.runs.get(run_id)
