"""Metrics of a run in an experiment tracker."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from speciate.cli.errors import ExitCode
from speciate.cli.runs.tracking import RunMetrics
from speciate.domain.problem import Problem
from speciate.schema.runs import EventRecord
from tests.support.runs import toy_problem
from tests.unit.cli.conftest import MAIN, Cli
from tests.unit.client.fake_service import (
    END,
    RUN,
    FakeService,
    candidate_json,
    event,
    run_json,
    say,
    serve_best,
    stream,
)

PROGRAM = "x = 9\n"


def _candidate(rewards: list[float] | None, *, repetition: bool = False) -> dict[str, Any]:
    return {"rewards": rewards, "failure": None if rewards else "crashed", "repetition": repetition}


def _batch(seq: int, evaluations: int, archive: int, *candidates: dict[str, Any]) -> bytes:
    placed = [[0, "cell", i] for i in range(archive)]
    return event(seq, evaluations=evaluations, archive=placed, candidates=list(candidates))


EVENTS = [
    event(1, "run.started"),
    event(2, "batch.proposed", tokens=50),
    _batch(3, 2, 2, _candidate([3.0, 8.0]), _candidate(None)),
    event(4, "batch.proposed", tokens=7),
    _batch(5, 5, 1, _candidate([9.0, 9.0]), _candidate([1.0, 4.0]), _candidate([1.0, 4.0], repetition=True)),
    event(6, "target.confirmed", target="half", candidate=3, evaluations=5, unlock=False),
]  # x is maximized, y minimized


@pytest.fixture
def watched(service: FakeService) -> FakeService:
    best = {"id": str(UUID(int=103)), "number": 3, "rewards": {"x": 9.0, "y": 9.0}, "targets": []}
    done = {"state": "completed", "last_event": 6, "best": best, "reached": []}
    done["spent"] = run_json()["spent"] | {"evaluations": 5, "cost": 0.25}
    service.on("POST", "/v1/runs", say(run_json(**done), 202))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(**done)))
    serve_best(service, number=3, definition=dict(toy_problem()), program=PROGRAM)
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1, rewards={"x": 1.0, "y": 9.0})))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(*EVENTS, END))
    return service


class Recorder(ModuleType):
    """A module with the interface that wandb and trackio share."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.opened: dict[str, Any] = {}
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.saved: dict[str, str] = {}
        self.finished = self.broken = False

    def init(self, **given: Any) -> None:
        print("wandb is here")  # noqa: T201
        self.opened = given

    def log(self, values: dict[str, float], *, step: int) -> None:
        if self.broken:
            raise OSError("disk full")
        self.logged.append((step, values))

    def log_artifact(self, folder: str, *, name: str, type: str) -> None:  # noqa: A002
        self.saved = {f"{type} {name} {path.name}": path.read_text() for path in Path(folder).iterdir()}

    def finish(self) -> None:
        self.finished = True


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "wandb", recorder)
    return recorder


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_metrics_of_the_whole_run_are_logged(
    cli: Cli, watched: FakeService, wandb: Recorder, more: list[str]
) -> None:
    outcome = cli("runs", "watch", RUN, "--log", "wandb:mine", "--no-out", *more)
    assert outcome.code == ExitCode.NOT_UNLOCKED
    first = {"tokens": 50, "evaluations": 2, "archive_updates": 2, "failed": 1, "duplicates": 0}
    second = {"tokens": 57, "evaluations": 5, "archive_updates": 3, "failed": 1, "duplicates": 1, "dollars": 0.25}
    assert [step for step, _ in wandb.logged] == [2, 5, 5, 5]
    one, two, three, last = (values for _, values in wandb.logged)
    assert one == first | {"best/x": 3.0, "best/y": 8.0, "weighted_sum": pytest.approx(0.25)}
    assert two == second | {"best/x": 9.0, "best/y": 4.0, "weighted_sum": pytest.approx(0.5)}
    assert three == two | {"reached/half": 1.0}
    assert last == three
    assert wandb.saved == {"program best-00000007 candidate.py": PROGRAM}
    assert wandb.opened["project"] == "mine"
    assert wandb.opened["config"]["run"] == str(RUN)
    assert wandb.opened["config"]["budget"]
    assert wandb.finished
    # Standard output belongs to the watch.
    assert "wandb is here" not in outcome.out
    if more:
        assert [json.loads(line)["seq"] for line in outcome.lines] == [1, 2, 3, 4, 5, 6]


def test_a_tracker_that_fails_does_not_end_the_watch(cli: Cli, watched: FakeService, wandb: Recorder) -> None:
    wandb.broken = True
    outcome = cli("runs", "watch", RUN, "--log", "wandb", "--no-out")
    assert outcome.code == ExitCode.NOT_UNLOCKED
    assert outcome.err.count("disk full") == 1
    assert wandb.finished


def test_a_tracker_that_fails_at_its_end_does_not_change_that_of_the_watch(
    cli: Cli, watched: FakeService, wandb: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ConnectionError("the server is gone")

    monkeypatch.setattr(wandb, "finish", fail)
    outcome = cli("runs", "watch", RUN, "--log", "wandb", "--no-out")
    assert outcome.code == ExitCode.NOT_UNLOCKED
    assert outcome.err.count("the server is gone") == 1


def test_a_tracker_is_checked_before_the_run_starts(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    command = ["run", "packing", "-p", "m", "-b", 5]
    for given, code, text in (
        (["--watch", "--log", "trackio"], ExitCode.CONFIGURATION, "pip install 'speciate[trackio]'"),
        (["--watch", "--log", "aim"], ExitCode.INVALID, "expected mlflow, tensorboard, trackio, wandb"),
        (["--log", "wandb"], ExitCode.INVALID, "--log needs --watch"),
    ):
        refused = cli(*command, *given)
        assert (refused.code, service.requests) == (code, [])
        assert text in refused.err


def test_infeasible_candidates_are_never_best() -> None:
    given = toy_problem().model_dump(mode="json")
    given["objectives"][1] |= {"role": "constraint", "limit": 5.0}
    metrics = RunMetrics(Problem.model_validate(given | {"weights": {"x": 1.0}}))
    raw = _batch(1, 2, 0, _candidate([9.0, 6.0]), _candidate([2.0, 5.0])).decode()
    assert metrics.add(EventRecord.model_validate_json(raw.partition("data: ")[2]))
    assert (metrics.values["best/x"], metrics.values["best/y"]) == (2.0, 5.0)


def _trackio(folder: Path) -> dict[str, Any]:
    (database,) = folder.glob("*.db")
    rows = sqlite3.connect(database).execute("SELECT metrics FROM metrics ORDER BY id").fetchall()
    return {"programs": [path.read_text() for path in folder.rglob("blobs/**/*") if path.is_file()]} | json.loads(
        rows[-1][0]
    )


def _mlflow(folder: Path) -> dict[str, Any]:
    rows = sqlite3.connect(folder / "mlflow.db").execute("SELECT key, value FROM latest_metrics").fetchall()
    return dict(rows) | {"programs": [path.read_text() for path in folder.rglob("candidate.py")]}


def _tensorboard(folder: Path) -> dict[str, Any]:
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-not-found]

    (path,) = folder.glob("runs/toy/*/events*")
    data, at, logged = path.read_bytes(), 0, dict[str, Any]()
    while at < len(data):  # the format of TFRecord: length, checksum, record, checksum
        size = int.from_bytes(data[at : at + 8], "little")
        for value in Event.FromString(data[at + 12 : at + 12 + size]).summary.value:
            text = value.tensor.string_val
            logged[value.tag] = text[0].decode() if text else value.simple_value
        at += size + 16
    logged["programs"] = [logged["best-00000007/candidate.py/text_summary"].split("```")[1].lstrip()]
    return logged


@pytest.mark.parametrize(
    ("name", "module", "read"),
    [("trackio", "trackio", _trackio), ("mlflow", "mlflow", _mlflow), ("tensorboard", "tensorboardX", _tensorboard)],
)
def test_a_tracker_keeps_metrics_and_program_on_this_machine(
    watched: FakeService, tmp_path: Path, name: str, module: str, read: Callable[[Path], dict[str, Any]]
) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path), "SPECIATE_URL": watched.url}
    command = [sys.executable, "-c", MAIN, "runs", "watch", str(RUN), "--log", f"{name}:toy", "--no-out"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == ExitCode.NOT_UNLOCKED, done.stderr
    logged = read(tmp_path)
    expected = {"best/x": 9.0, "best/y": 4.0, "reached/half": 1.0, "tokens": 57, "dollars": 0.25}
    assert {key: logged[key] for key in expected} == expected
    assert logged["programs"] == [PROGRAM]


def test_a_tracker_that_cannot_be_opened_names_the_run_that_goes_on(
    cli: Cli, watched: FakeService, wandb: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**_: object) -> None:
        raise RuntimeError("not logged in")

    monkeypatch.setattr(wandb, "init", init)
    outcome = cli("run", "packing", "-p", "m", "-b", 5, "--watch", "--log", "wandb")
    assert outcome.code == ExitCode.CONFIGURATION
    assert "not logged in" in outcome.err
    assert f"speciate runs watch {RUN}" in outcome.err
    assert watched.requests
