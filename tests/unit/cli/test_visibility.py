"""``archive``, ``delete`` and ``restore`` of runs, problems and policies, and the filter of the lists."""

from __future__ import annotations

import pytest
import typer

from speciate.cli.errors import ExitCode
from tests.unit.cli.conftest import Cli
from tests.unit.cli.test_resources import policy_json
from tests.unit.client.fake_service import AT, RUN, FakeService, page, problem_json, run_json, say

HIDDEN = {"archived_at": AT.isoformat()}
DELETED = {"deleted_at": AT.isoformat()}


def _summary(**values: object) -> dict[str, object]:
    record = problem_json()
    definition = record["definition"]
    shown = {name: definition[name] for name in ("slug", "title", "kind")}
    names = {name: [each["name"] for each in definition[name]] for name in ("objectives", "targets")}
    kept = {name: record[name] for name in ("id", "version", "digest", "created_at")}
    return {**kept, **shown, **names, **values}


def test_runs_are_archived_and_restored_by_id_or_suffix(cli: Cli, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", "/v1/runs", page(run_json()))
    service.on("POST", f"/v1/runs/{RUN}:archive", say(run_json(**HIDDEN)))
    outcome = cli("runs", "archive", RUN, str(RUN)[-8:])
    assert (outcome.code, outcome.lines) == (ExitCode.OK, [f"{RUN} is archived."] * 2)
    # The suffix is looked for among hidden runs, too.
    assert next(r.query for r in service.requests if r.path == "/v1/runs")["visibility"] == ["all"]
    service.on("POST", f"/v1/runs/{RUN}:restore", say(run_json()))
    assert cli("runs", "restore", RUN).lines == [f"{RUN} is visible."]
    assert '"archived_at":null' in cli("runs", "restore", RUN, "--json").out.replace(" ", "")


def test_delete_asks_for_confirmation(cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("DELETE", f"/v1/runs/{RUN}", say(run_json(**DELETED)))
    refused = cli("runs", "delete", RUN)
    assert refused.code == ExitCode.INVALID
    assert "Pass --yes to confirm." in refused.err
    assert not service.requests
    assert cli("runs", "delete", RUN, "--yes").lines == [f"{RUN} is deleted."]
    asked = []

    def answer(question: str, **_: object) -> bool:
        asked.append(question)
        return len(asked) > 1

    monkeypatch.setattr(typer, "confirm", answer)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    before = len(service.requests)
    assert cli("runs", "delete", RUN).code == ExitCode.FAILED
    assert len(service.requests) == before
    assert cli("runs", "delete", RUN).code == ExitCode.OK
    assert len(service.requests) > before
    assert asked[0] == f"Delete {RUN}?"


def test_versions_are_changed_by_name(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/problems/packing:archive", page(_summary(**HIDDEN), _summary(version=2, **HIDDEN)))
    assert cli("problems", "archive", "packing").lines == ["packing@1 is archived.", "packing@2 is archived."]
    service.on("DELETE", "/v1/policies/qwen@1", page(policy_json() | DELETED))
    assert cli("policies", "delete", "qwen@1", "-y").lines == ["qwen@1 is deleted."]


def test_refusal_ends_the_command(cli: Cli, service: FakeService) -> None:
    detail = {"type": "urn:speciate:error:conflict", "title": "t", "status": 409, "detail": "1 run refers to it."}
    service.on("DELETE", "/v1/problems/packing", say(detail, 409))
    outcome = cli("problems", "delete", "packing", "other", "--yes")
    assert outcome.code == ExitCode.CONFLICT
    assert "1 run refers to it." in outcome.err
    assert len(service.requests) == 1


def test_lists_filter_by_visibility_and_mark_hidden_objects(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json(**HIDDEN, state="completed"), run_json(state="completed")))
    lines = cli("runs", "list", "--visibility", "all").lines
    assert "completed (archived)" in lines[1]
    assert "archived" not in lines[2]
    service.on("GET", "/v1/problems", page(_summary(**DELETED)))
    assert "packing@1 (deleted)" in cli("problems", "list", "--visibility", "deleted").out
    service.on("GET", "/v1/policies", page())
    assert "No policies match visibility archived." in cli("policies", "list", "--visibility", "archived").err
    queries = [request.query["visibility"] for request in service.requests]
    assert queries == [["all"], ["deleted"], ["archived"]]
    assert cli("runs", "list", "--visibility", "nonsense").code == ExitCode.USAGE


def test_show_has_the_time_of_hiding(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/policies/qwen", say(policy_json() | HIDDEN))
    service.on("GET", "/v1/problems/packing", say(problem_json() | DELETED))
    words = [line.split()[0] for line in cli("policies", "show", "qwen").lines]
    assert "archived" in words
    assert "deleted" not in words
    assert "deleted" in [line.split()[0] for line in cli("problems", "show", "packing").lines if line]
