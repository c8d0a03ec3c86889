"""``speciate doctor`` against a stand-in of the service."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from evaluators.canary import probe_tier
from speciate.cli.doctor import machine
from speciate.cli.doctor.findings import Status
from speciate.cli.errors import ExitCode
from speciate.settings import Settings
from tests.unit.cli.conftest import Cli
from tests.unit.cli.test_resources import policy_json
from tests.unit.client.fake_service import FakeService, Handler, page, problem, say


def test_doctor_masks_secrets_and_names_sources(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECIATE_TOKEN", "sp_secret")
    service.on("GET", "/readyz", say({}))
    service.on("GET", "/v1/workers", page())
    service.on("GET", "/v1/policies", page(policy_json()))
    service.on("POST", "/v1/policies/qwen:ping", problem(503, "policy-unavailable", "down."))
    outcome = cli("--url", service.url, "doctor", "--json")
    found = json.loads(outcome.out)
    settings = {each["name"]: (each["value"], each["source"]) for each in found["settings"]}
    assert settings["token"] == ("********", "environment")
    assert settings["url"] == (service.url, "flag")
    assert settings["port"] == ("8420", "default")
    assert "sp_secret" not in outcome.out + outcome.err
    status = {each["name"]: each["status"] for each in found["checks"]}
    assert (status["sandbox"], status["api"], status["policy qwen"]) == ("good", "good", "warning")


def test_doctor_prints_fixes(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("SPECIATE_REDIS_URL", "redis://:pass@127.0.0.1:1")
    monkeypatch.setenv("SPECIATE_DATABASE_URL", "postgresql://user:pass@127.0.0.1:1/x")
    outcome = cli("doctor")
    assert outcome.code == ExitCode.FAILED
    assert ":pass" not in outcome.out + outcome.err
    assert "Check SPECIATE_REDIS_URL." in outcome.out
    assert sum(line.startswith("FAIL") for line in outcome.lines) == 3


def test_doctor_fails_if_the_service_it_was_given_is_away_or_not_ready(cli: Cli, service: FakeService) -> None:
    absent = cli("--url", "http://127.0.0.1:1", "doctor")
    assert absent.code == ExitCode.FAILED
    assert any(line.startswith("FAIL  api: cannot reach the service at http://127.0.0.1:1") for line in absent.lines)
    service.on("GET", "/readyz", problem(503, "unavailable", "PostgreSQL does not respond."))
    unready = cli("--url", service.url, "doctor")
    assert unready.code == ExitCode.FAILED
    assert any(line.startswith("FAIL  api: PostgreSQL does not respond.") for line in unready.lines)


def test_doctor_reports_unknown_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in ("SPECIATE_CONFIG", "SPECIATE_VALKEY_BIN", "SPECIATE_PRICES", "speciate_port"):
        monkeypatch.setenv(known, "x")
    assert machine.environment().status is Status.GOOD
    monkeypatch.setenv("SPECIATE_DATADIR", "x")
    finding = machine.environment()
    assert (finding.status, finding.remedy) == (Status.WARNING, "Did you mean SPECIATE_DATA_DIR?")
    assert "SPECIATE_DATADIR" in finding.detail


def test_doctor_rejects_an_invalid_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_PORT", "many")
    outcome = cli("doctor")
    assert outcome.code == ExitCode.CONFIGURATION
    assert "SPECIATE_PORT" in outcome.err


def test_doctor_accepts_a_missing_data_directory(tmp_path: Path) -> None:
    finding = machine.data_dir(Settings(data_dir=tmp_path / "a" / "b"))
    assert finding.status in {Status.GOOD, Status.WARNING}


def test_doctor_is_content_before_the_first_start(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECIATE_URL", raising=False)
    monkeypatch.setenv("SPECIATE_DATA_DIR", str(tmp_path))
    assert "ok    api: no service runs on this machine yet: `speciate up` starts one" in cli("doctor").lines
    monkeypatch.setenv("SPECIATE_PORT", "1")
    assert "ok    api: no service runs on this machine yet: `speciate up` starts one" in cli("doctor").lines
    killed = {"database_url": "postgresql://u@127.0.0.1:1/x", "redis_url": "redis://127.0.0.1:1/0"}
    (tmp_path / "running.json").write_text(json.dumps(killed))
    assert any(line.startswith("FAIL  api: cannot reach the service") for line in cli("doctor").lines)


def test_doctor_counts_languages_that_the_tier_does_not_run_as_missing(tmp_path: Path) -> None:
    in_a, in_b = (machine.languages(Settings(data_dir=tmp_path), tier) for tier in ("A", "B"))
    present = in_a.detail.partition(". Not available")[0]
    if present == "Python":
        pytest.skip("this machine has no other language")
    assert (in_a.status, in_b.status) == (Status.GOOD, Status.WARNING)
    assert in_b.detail == f"Python only: other languages need sandbox tier A. Installed: {present}"
    assert "restart `speciate up`" in in_b.remedy


def test_doctor_names_workers_that_started_before_the_stronger_tier(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/readyz", say({}))
    service.on("GET", "/v1/policies", page())
    worker = {"name": "evaluate@a", "pid": 1, "version": "1", "queues": ["evaluate"], "slots": 2, "tier": "B"}
    service.on("GET", "/v1/workers", page(worker))
    outcome = cli("--url", service.url, "doctor")
    if "ok    sandbox: candidates run in tier A" not in outcome.lines:
        pytest.skip("tier A does not work on this machine")
    assert "warn  tiers: evaluate@a: B; this machine can run tier A" in outcome.lines
    assert outcome.lines[-1].endswith(" checks failed.")
    assert "lease_s" not in outcome.out  # a setting that has its default


def test_doctor_reports_problems_of_a_deployment(cli: Cli, service: FakeService) -> None:
    def worker(name: str, queue: str, tier: str) -> dict[str, object]:
        return {"name": name, "pid": 1, "version": "0.0.1", "queues": [queue], "slots": 2, "tier": tier}

    lines = [
        'speciate_queue_oldest_seconds{kind="evaluate"} 900',
        "speciate_reconciler_age_seconds 60",
        "speciate_leases_overdue 2",
        "speciate_runs_stalled 1",
    ]

    def metrics(handler: Handler) -> None:
        body = "\n".join([*lines, ""]).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    service.on("GET", "/readyz", say({"version": "0.0.2", "redis": "does not respond: refused"}))
    service.on("GET", "/v1/workers", page(worker("evaluate@a", "evaluate", "A"), worker("evaluate@b", "evaluate", "B")))
    service.on("GET", "/v1/policies", page())
    service.on("GET", "/metrics", metrics)
    outcome = cli("--url", service.url, "doctor", "--service-only", "--json")
    assert outcome.code == ExitCode.FAILED
    found = {each["name"]: each for each in json.loads(outcome.out)["checks"]}
    status = {name: each["status"] for name, each in found.items()}
    assert (status["queue evaluate"], status["queue generate"], status["queue control"]) == ("good", "bad", "bad")
    assert (status["api"], status["versions"], status["tiers"]) == ("warning", "warning", "warning")
    assert (status["redis"], found["redis"]["detail"][:25]) == ("bad", "does not respond: refused")
    assert (status["work"], status["reconciler"], status["runs"]) == ("warning", "bad", "warning")
    assert "900 s" in found["work"]["detail"]
    lines[0] = 'speciate_queue_oldest_seconds{kind="learn"} 90'
    waiting = json.loads(cli("--url", service.url, "doctor", "--service-only", "--json").out)["checks"]
    assert next(each for each in waiting if each["name"] == "work")["remedy"].startswith("Start a learn worker")
    assert all(each["remedy"] for each in found.values() if each["status"] != "good")


@pytest.mark.parametrize(
    ("said", "advised"), [("setting up uid map: Permission denied", True), ("Can't find source path /data/env", False)]
)
def test_a_bubblewrap_that_does_not_work_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, *, advised: bool
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f'#!/bin/sh\necho "bwrap: {said}" >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    probe = probe_tier.__wrapped__("A")
    assert ("user namespaces" in probe.remedy) == advised
    assert "imports" not in probe.breaches[0]
