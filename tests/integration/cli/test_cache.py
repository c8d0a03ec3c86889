"""``speciate caches rebuild`` on real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.cli.app import app
from speciate.cli.errors import ExitCode
from speciate.domain.budget import Budget
from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from speciate.policies import build_client
from speciate.problems.loader import bundled, load_problem
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.runs.start import start_run
from speciate.schema.policies import RunPolicies
from speciate.settings import Settings
from speciate.storage.stores import Stores

Rebuild = Callable[[], tuple[int, str, str]]


@pytest.fixture
def rebuild(settings: Settings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rebuild:
    assert settings.database_url is not None
    assert settings.redis_url is not None
    monkeypatch.setenv("SPECIATE_DATABASE_URL", settings.database_url.get_secret_value())
    monkeypatch.setenv("SPECIATE_REDIS_URL", settings.redis_url.get_secret_value())

    def run() -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(["caches", "rebuild", "--json"], prog_name="speciate")
        captured = capfd.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def _begin(stores: Stores, signals: LocalQueue) -> UUID:
    problem, _ = stores.catalog.add_problem(load_problem(bundled()["sorting-network-8"]))
    policy, _ = stores.catalog.add_policy(Policy(slug="mutator", kind="program_mutator"))
    spec = RunSpec(budget=Budget(evaluations=200), lanes=1, batch=4, strategy="best_of_n")
    return start_run(stores.runs, signals, problem=problem, policies=RunPolicies(policy), spec=spec)[0]


@pytest.mark.servers
def test_archive_of_a_run_is_rebuilt(stores: Stores, rebuild: Rebuild, strongest: SandboxEvaluator) -> None:
    # Local signals leave the Redis cache empty.
    signals = LocalQueue()
    run_id = _begin(stores, signals)
    drain(WorkExecutor(stores.work, signals, strongest, build_client), signals, most_units=5)
    archive = stores.queries.archive(run_id)
    assert archive

    code, out, _ = rebuild()

    assert (code, json.loads(out)) == (ExitCode.OK, {"runs": 1, "elites": len(archive)})
    assert stores.cache.is_complete(run_id)
    elites = stores.work.elites(run_id, 0)
    assert sorted(zip(elites.cells, elites.numbers, strict=True)) == sorted((e.cell, e.number) for e in archive)


@pytest.mark.servers
def test_rebuild_without_runs(rebuild: Rebuild) -> None:
    code, out, _ = rebuild()
    assert (code, json.loads(out)) == (ExitCode.OK, {"runs": 0, "elites": 0})


@pytest.mark.servers
@pytest.mark.parametrize(
    ("name", "url", "named"),
    [
        ("SPECIATE_REDIS_URL", "redis://127.0.0.1:1", "Redis does not respond"),
        ("SPECIATE_DATABASE_URL", "postgresql://127.0.0.1:1/x", "PostgreSQL does not respond"),
    ],
)
def test_unreachable_server_is_named(
    stores: Stores, rebuild: Rebuild, monkeypatch: pytest.MonkeyPatch, name: str, url: str, named: str
) -> None:
    _begin(stores, LocalQueue())
    monkeypatch.setenv(name, url)
    code, _, err = rebuild()
    assert code == ExitCode.UNREACHABLE
    assert named in err


def test_missing_servers_are_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPECIATE_DATABASE_URL", raising=False)
    with pytest.raises(SystemExit) as ended:
        app(["caches", "rebuild"], prog_name="speciate")
    assert ended.value.code == ExitCode.CONFIGURATION
    assert "SPECIATE_DATABASE_URL" in capfd.readouterr().err
