"""``speciate up`` reports invalid settings in one line with exit code 8, before it starts a process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from evaluators.contained.unsafe import NAME as UNSAFE
from evaluators.evaluator_factory import AUTO
from evaluators.tiers.launch import TIERS
from speciate.cli import local_service
from speciate.cli.errors import ExitCode
from speciate.cli.local_service import LocalService
from speciate.cli.up import StopRequested, stop_on_signals
from speciate.domain.errors import UnavailableError
from speciate.settings import SERVE_TOKEN_VARIABLE, Settings, load_settings
from speciate.settings import UNSAFE as NAME_IN_SETTINGS
from tests.unit.cli.conftest import Cli


def _refused(cli: Cli, *args: object) -> str:
    outcome = cli("up", "--port", 0, *args)
    assert outcome.code == ExitCode.CONFIGURATION, outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in outcome.err
    return outcome.err


def test_data_directory_that_cannot_be_created(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("/proc/foo", tmp_path / "file", tmp_path / "file" / "below"):
        assert f"the data directory {place} cannot be created" in _refused(cli, "--data-dir", place)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DATABASE_URL", "foo", "expected postgresql://"),
        ("DATABASE_URL", "postgresql://user:pass/word@host/x", "expected postgresql://"),
        ("REDIS_URL", "http://127.0.0.1", "expected redis://"),
        ("SANDBOX", "castle", "'auto', 'A', 'B' or 'unsafe'"),
        ("HOST", "0.0.0.0", "SPECIATE_TOKEN"),
        ("TOKEN", "", "SPECIATE_TOKEN is empty"),
    ],
)
def test_invalid_setting(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(f"SPECIATE_{name}", value)
    message = _refused(cli, "--data-dir", tmp_path / "data")
    assert words in message
    assert "pass/word" not in message
    assert not (tmp_path / "data").exists()


def test_unreachable_redis(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_REDIS_URL", "redis://127.0.0.1:1/0")
    outcome = cli("up", "--port", 0, "--data-dir", tmp_path / "data")
    assert outcome.code == ExitCode.UNREACHABLE
    assert "Redis does not respond" in outcome.err
    assert "Check SPECIATE_REDIS_URL." in outcome.err


def test_relative_data_directory_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings(data_dir=Path("data")).data_dir == tmp_path / "data"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPECIATE_DATA_DIR", "~/data")
    assert load_settings().data_dir == tmp_path / "data"


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1")]
)
def test_stack_connects_to_itself_not_to_the_public_url(host: str, url: str) -> None:
    made = LocalService(Settings(host=host, port=1, url="https://lab.example"))
    assert made.url == url
    assert made.settings.base_url == "https://lab.example"


@pytest.mark.parametrize(
    ("options", "variables", "directory"),
    [
        ([], {}, ".local/share/speciate-demo"),
        ([], {"SPECIATE_DATA_DIR": "~/data"}, "data-demo"),
        (["--data-dir", "given"], {"SPECIATE_DATA_DIR": "~/data"}, "given"),
    ],
)
def test_demo_uses_its_own_service_and_directory(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    variables: dict[str, str],
    directory: str,
) -> None:
    class Seen(LocalService):
        def start(self) -> Iterator[str]:
            raise UnavailableError(f"url {self.settings.url}, port {self.settings.port}, {self.settings.data_dir}.")

    monkeypatch.setattr(local_service, "LocalService", Seen)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    for name, value in {"HOME": str(tmp_path), "SPECIATE_URL": "https://lab.example", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cli("demo", *options).err.splitlines()[-1] == f"error: url None, port 0, {tmp_path / directory}."


def test_serve_token_reaches_the_processes_that_need_it_and_no_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token_of(name: str) -> str | None:
        command = made._command(name, "module")
        assert "t0ken" not in f"{command.argv} {command!r}"
        return command.env.get(SERVE_TOKEN_VARIABLE)

    made = LocalService(Settings(data_dir=tmp_path))
    assert token_of("api") is None
    (tmp_path / "token").write_text("t0ken\n")
    monkeypatch.setenv(f"{SERVE_TOKEN_VARIABLE}_FILE", str(tmp_path / "token"))
    assert {name: token_of(name) for name in ("api", "policies", "generate", "control", "evaluate")} == {
        "api": "t0ken",
        "policies": "t0ken",
        "generate": "t0ken",
        "control": "t0ken",
        "evaluate": None,
    }


@pytest.mark.parametrize(
    ("settings", "networks"),
    [
        ({}, "loopback"),
        ({"host": "::1"}, "loopback"),
        ({"token": "t" * 32}, ""),  # holders of project tokens must not reach this machine's other services
        ({"token": "t" * 32, "host": "0.0.0.0"}, ""),
        ({"token": "t" * 32, "allowed_networks": "loopback"}, "loopback"),
    ],
)
def test_policies_may_use_loopback_by_default_only_without_an_operator_token(
    tmp_path: Path, settings: dict[str, str], networks: str
) -> None:
    made = LocalService(Settings.model_validate({"data_dir": tmp_path, **settings}))
    assert made._command("api", "module").env["SPECIATE_ALLOWED_NETWORKS"] == networks


def test_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with stop_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            with pytest.raises(StopRequested):
                os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_settings_accept_every_tier() -> None:
    assert set(get_args(Settings.model_fields["sandbox"].annotation)) == {AUTO, UNSAFE, *TIERS}
    assert NAME_IN_SETTINGS == UNSAFE
