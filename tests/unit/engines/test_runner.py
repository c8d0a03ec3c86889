"""What becomes of a run whose engine fails."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from speciate.domain.errors import InvalidInputError, SpeciateError, UnavailableError
from speciate.engines.check import ToyService, toy_session
from speciate.engines.installation import Engine, from_command, installed
from speciate.engines.runner import EngineRunner, Report
from speciate.schema.engines import EngineSession

ASK = """
import os, urllib.request
urllib.request.urlopen(os.environ["SPECIATE_MODEL_URL"] + "/models")
"""


class OneRun(ToyService):
    """A service whose only run is offered until it has ended."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.session = toy_session(name, self).model_copy(update={"engine_options": options})
        self.ends: list[tuple[str, str]] = []

    def acquire(self, **_: object) -> EngineSession | None:
        return None if self.ends else self.session

    def end(self, _: UUID, outcome: str, reason: str, **__: object) -> None:
        self.ends.append((outcome, reason))


def run(service: OneRun, engine: Engine, folder: Path, report: Report = lambda *_: None) -> None:
    client, engines = SimpleNamespace(engines=service), {service.session.engine: engine}
    EngineRunner(client, engines, folder, idle_s=0, report=report).run_until_idle()  # type: ignore[arg-type]


def mine(tmp_path: Path, source: str) -> Engine:
    script = tmp_path / "engine.py"
    script.write_text(source)
    return from_command(f"{sys.executable} {script}")


def test_an_engine_that_cannot_begin_stops_the_runner_and_gives_the_run_back(tmp_path: Path) -> None:
    service = OneRun("mine", {})
    with pytest.raises(SpeciateError, match="'mine' failed before its first request, and its run was given back"):
        run(service, mine(tmp_path, "def broken("), tmp_path)
    ((outcome, reason),) = service.ends
    assert (outcome, "SyntaxError" in reason) == ("released", True)


def test_an_engine_that_fails_later_has_failed(tmp_path: Path) -> None:
    service = OneRun("mine", {})
    run(service, mine(tmp_path, f"{ASK}\nraise SystemExit('no \\0 more')"), tmp_path)
    assert service.ends == [("failed", "It ended with exit code 1: no \ufffd more")]


def test_a_refused_report_does_not_stop_the_runner(tmp_path: Path) -> None:
    class Refusing(OneRun):
        def end(self, session: UUID, outcome: str, reason: str, **more: object) -> None:
            super().end(session, outcome, reason, **more)
            raise InvalidInputError("The request is not valid.")

    told: list[str] = []
    run(Refusing("mine", {}), mine(tmp_path, ASK), tmp_path, lambda _, outcome, reason: told.extend((outcome, reason)))
    assert told == ["finished", "The service refused this report: The request is not valid."]


@pytest.mark.parametrize(
    ("name", "known"), [("sequential-sampling", "concurrency or best"), ("independent-sampling", "concurrency")]
)
def test_a_bundled_engine_refuses_unknown_options(tmp_path: Path, name: str, known: str) -> None:
    engine = installed(name, tmp_path)
    assert engine is not None
    with pytest.raises(SpeciateError, match=f"unknown engine option 'bests': expected {known}\\."):
        run(OneRun(name, {"bests": 3}), engine, tmp_path)


class Twice(OneRun):
    """Offers the run again after the first attempt, as after a pause."""

    def acquire(self, **_: object) -> EngineSession | None:
        return self.session if len(self.ends) < 2 else None


@pytest.mark.parametrize("change", ["open(output, 'w')", "os.symlink('nowhere', output)"])
def test_an_engine_that_spoils_its_folder_does_not_end_the_runner(tmp_path: Path, change: str) -> None:
    service, read = Twice("mine", {}), "json.load(open(os.environ['SPECIATE_ENGINE_RUN']))['output']"
    run(service, mine(tmp_path, f"{ASK}\nimport json\noutput = {read}\nos.rmdir(output)\n{change}"), tmp_path)
    assert [outcome for outcome, _ in service.ends] == ["finished", "finished"]


def test_time_without_the_service_counts_as_idle(tmp_path: Path) -> None:
    class Away(OneRun):
        def acquire(self, **_: object) -> EngineSession | None:
            raise UnavailableError("away")

    client = SimpleNamespace(engines=Away("mine", {}))
    runner = EngineRunner(client, {}, tmp_path, idle_s=0.1)  # type: ignore[arg-type]
    guard = threading.Timer(60, runner.stopping.set)
    guard.start()
    runner.run_until_idle()
    assert guard.is_alive()
    guard.cancel()
