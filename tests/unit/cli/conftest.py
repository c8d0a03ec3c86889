from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from speciate.cli.app import app
from tests.unit.client.fake_service import FakeService, run_fake_service

# A shell starts background jobs with SIGINT ignored, and a child inherits that.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from speciate.cli import main; main()"


@dataclass
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., CommandResult]


@pytest.fixture(autouse=True)
def _own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A watch writes the answer of its run into the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("SPECIATE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeService]:
    with run_fake_service() as made:
        monkeypatch.setenv("SPECIATE_URL", made.url)
        yield made


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process, as the shell would."""

    def run(*args: object) -> CommandResult:
        with pytest.raises(SystemExit) as ended:
            app([str(arg) for arg in args], prog_name="speciate")
        captured = capfd.readouterr()
        return CommandResult(int(ended.value.code or 0), captured.out, captured.err)

    return run
