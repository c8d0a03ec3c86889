"""Tournament runs and unlocks as JSON Lines, CSV and Parquet files."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyarrow import parquet

from speciate.cli.errors import ExitCode
from speciate.schema.declarations import TournamentRun
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_service import AT, RUN, FakeService, page, say, stream

HOSTILE = '=HYPERLINK("http://x")'


def _runs() -> list[TournamentRun]:
    shared: dict[str, Any] = {"tournament": "mazes", "problem": "p@1", "strategy": "best_of_n", "mutator": None}
    ended = {"state": "completed", "reason": HOSTILE, "reached": True, "evaluations": 7, "score": 0.1 + 0.2}
    return [
        TournamentRun(**shared, number=1, seed=2**60, entrant="a", policy="p@1", run_id=UUID(int=1), **ended),
        TournamentRun(
            **shared, number=2, seed=0, entrant="b", policy="p@1=3 + q@1=1", run_id=None, state="planned", reason=None
        ),
    ]


@pytest.fixture
def runs(service: FakeService) -> list[TournamentRun]:
    made = _runs()
    lines = "".join(run.model_dump_json() + "\n" for run in made).encode()
    service.on("GET", "/v1/tournaments/mazes/export", stream(lines, kind="application/x-ndjson"))
    return made


def test_tournament_runs_as_parquet(cli: Cli, runs: list[TournamentRun], tmp_path: Path) -> None:
    out = tmp_path / "runs.parquet"
    assert cli("tournaments", "export", "mazes", "--out", out).code == ExitCode.OK
    table = parquet.read_table(out)
    assert table.column_names == list(TournamentRun.model_fields)
    types = {name: str(table.schema.field(name).type) for name in ("seed", "reached", "score", "run_id", "evaluations")}
    assert types == {
        "seed": "int64", "reached": "bool", "score": "double", "run_id": "string", "evaluations": "int64"
    }  # fmt: skip
    assert [TournamentRun.model_validate(row) for row in table.to_pylist()] == runs
    assert [path.name for path in tmp_path.iterdir()] == ["runs.parquet"]


def test_tournament_runs_as_json_lines(
    cli: Cli, runs: list[TournamentRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("tournaments", "export", "mazes", "--format", "jsonl").lines == ["mazes.jsonl"]
    lines = Path("mazes.jsonl").read_text().splitlines()
    assert [TournamentRun.model_validate_json(line) for line in lines] == runs


@pytest.mark.parametrize("out", [".", "file/x.jsonl", "y" * 253])
def test_places_that_no_file_can_have_are_refused(
    cli: Cli, runs: list[TournamentRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    outcome = cli("tournaments", "export", "mazes", "--format", "jsonl", "--out", out)
    assert (outcome.code, "cannot be written" in outcome.err) == (ExitCode.CONFLICT, True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_missing_pyarrow_is_reported_with_the_extra(
    cli: Cli, runs: list[TournamentRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    outcome = cli("tournaments", "export", "mazes", "--out", tmp_path / "r.parquet")
    assert outcome.code == ExitCode.CONFIGURATION
    assert "pip install 'speciate[parquet]'" in outcome.err
    assert list(tmp_path.iterdir()) == []


def _unlock(**values: object) -> dict[str, object]:
    return {
        "run_id": str(RUN), "problem_id": str(UUID(int=1)), "problem": "packing", "problem_version": 1,
        "policy_id": str(UUID(int=2)), "policy": "m", "policy_version": 3, "strategy": "best_of_n", "seed": 5,
        "target": "first", "unlock": True, "state": "confirmed", "number": 9, "candidate_id": str(UUID(int=9)),
        "forgeable": False, "evaluations": 1234, "tokens": 0, "seconds": 2.5, "at": AT.isoformat(), **values,
    }  # fmt: skip


def test_unlocks_are_written_to_files(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    sources = [{"run": str(UUID(int=n)), "evaluations": 31, "tokens": 0, "seconds": 2.0} for n in (3, 4)]
    service.on("GET", "/v1/unlocks", page(_unlock(target=HOSTILE, ensemble=["m@3", "n@1"], sources=sources)))
    assert "1,234 (+62)       0  2.5 (+4.0)" in cli("unlocks").lines[1]
    for suffix in ("csv", "jsonl", "parquet"):
        assert (
            cli("unlocks", "--first", "--strategy", "best_of_n", "--out", tmp_path / f"u.{suffix}").code == ExitCode.OK
        )
    assert service.requests[1].query["first"] == ["true"]
    assert service.requests[1].query["strategy"] == ["best_of_n"]
    (row,) = csv.DictReader((tmp_path / "u.csv").read_text().splitlines())
    assert (row["target"], row["ensemble"], row["evaluations"]) == ("'" + HOSTILE, "m@3 + n@1", "1234")
    assert json.loads(row["sources"].partition(" + ")[0]) == sources[0]
    assert json.loads((tmp_path / "u.jsonl").read_text())["target"] == HOSTILE
    assert parquet.read_table(tmp_path / "u.parquet").to_pylist()[0]["ensemble"] == "m@3 + n@1"
    assert cli("unlocks", "--out", tmp_path / "u.xlsx").code == ExitCode.INVALID


def test_unlocks_by_policy(cli: Cli, service: FakeService) -> None:
    shared = {"mutator": None, "strategy": "best_of_n", "tokens": 5, "seconds": 1.0, "unlocked_first": False}
    target = {
        "target": "first", "unlock": True, "first": _unlock(), "only": "m@3", "never": ["n@1"],
        "attempts": [
            {**shared, "policy": "m@3", "runs": 2, "evaluations": 2000, "reached": 1, "first": _unlock()},
            {**shared, "policy": "n@1", "runs": 3, "evaluations": 3000, "reached": 0, "first": None},
        ],
    }  # fmt: skip
    found = {"problem": "packing", "version": 1, "evaluator_digest": "e", "forgeable": True, "targets": [target]}
    service.on("GET", "/v1/problems/packing/unlocks", say(found))
    lines = cli("unlocks", "--problem", "packing", "--by-policy").lines
    assert lines[0] == "packing@1, first (forgeable)"
    assert "only: m@3" in lines
    assert "never: n@1" in lines
    assert [line.split()[-1] for line in lines[-2:]] == ["1,234", "never"]
    assert (
        json.loads(cli("unlocks", "--problem", "packing", "--by-policy", "--json").out)["targets"][0]["only"] == "m@3"
    )
    assert cli("unlocks", "--by-policy").code == ExitCode.INVALID


def test_record_history(cli: Cli, service: FakeService) -> None:
    record = {
        "objective": "sum_radii", "value": 2.635, "run_id": str(RUN), "number": 9, "candidate_id": str(UUID(int=9)),
        "policy": None, "strategy": "best_of_n", "seed": 5, "evaluations": 1234, "at": AT.isoformat(),
    }  # fmt: skip
    service.on("GET", "/v1/problems/packing/records", page(record))
    shown = cli("unlocks", "--problem", "packing", "--records").lines[1]
    assert shown.split()[:4] == ["sum_radii", "2.635", "seed", "program"]
