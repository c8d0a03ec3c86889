"""Settings: values from files, errors, and the environment of other processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from speciate.cli.doctor import machine
from speciate.cli.doctor.findings import Status
from speciate.domain.errors import ConfigurationError
from speciate.domain.policy import Policy
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.service_address import service_url
from speciate.settings import Settings, load_settings, secret_of, source_of


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "token"
    path.write_text("from-a-file\n")
    monkeypatch.setenv("SPECIATE_TOKEN_FILE", str(path))
    monkeypatch.delenv("SPECIATE_TOKEN", raising=False)
    return path


def test_a_home_that_is_not_known_is_needed_for_the_default_directory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "SPECIATE_DATA_DIR", "SPECIATE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(ConfigurationError, match=r"home directory that is not known.*SPECIATE_DATA_DIR"):
        load_settings()
    assert service_url(load_settings(data_dir=tmp_path)) is None


def test_a_secret_is_read_from_its_file(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = load_settings().token
    assert token is not None
    assert token.get_secret_value() == "from-a-file"
    assert source_of("token", {}) == "environment"
    assert machine.environment().status is Status.GOOD
    monkeypatch.setenv("SPECIATE_TOKEN", "itself")
    assert secret_of("SPECIATE_TOKEN") == "itself"
    token = load_settings().token
    assert token is not None
    assert token.get_secret_value() == "itself"


def test_a_value_in_a_file_is_checked_like_any_other(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECIATE_DATABASE_URL_FILE", str(secret))
    with pytest.raises(ConfigurationError, match="is not a URL of PostgreSQL") as refused:
        load_settings()
    assert "from-a-file" not in str(refused.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_an_unreadable_file_is_reported(secret: Path, content: bytes | None) -> None:
    secret.unlink() if content is None else secret.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"SPECIATE_TOKEN_FILE names .*token, which cannot be read"):
        load_settings()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"prot = 1", "Did you mean 'port'"),
        (b"foo = 1", "Known are: database_url, "),
        (b"url = '\xff'", "settings.toml: 'utf-8'"),
    ],
)
def test_a_mistake_in_the_configuration_file_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    (tmp_path / "settings.toml").write_bytes(content)
    monkeypatch.setenv("SPECIATE_CONFIG", str(tmp_path / "settings.toml"))
    with pytest.raises(ConfigurationError) as refused:
        load_settings()
    assert words in str(refused.value)
    assert "SPECIATE_FOO" not in str(refused.value)


def test_the_key_of_a_policy_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    monkeypatch.setenv("POLICY_KEY_X_FILE", str(tmp_path / "key"))
    values = {"slug": "p", "kind": "openai_compatible", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    client = OpenAICompatible(Policy.model_validate(values | {"api_key_env": "POLICY_KEY_X"}))
    assert client._endpoint._headers()["Authorization"] == "Bearer sk-1"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({}, "http://127.0.0.1:8420"),
        ({"host": "::1", "port": 80}, "http://[::1]:80"),
        ({"host": "lab.example"}, "http://lab.example:8420"),
        ({"host": "::1", "url": "https://lab.example/"}, "https://lab.example"),
        ({"url": ""}, "http://127.0.0.1:8420"),
    ],
)
def test_clients_use_the_listening_address_or_the_configured_url(given: dict[str, Any], url: str) -> None:
    assert Settings(**given).base_url == url


def test_another_process_gets_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings(
        metrics_token=SecretStr("m3ter"),
        secret_key=SecretStr("k" * 32),
        allowed_networks=("loopback", "private"),
        agent_commands=("agent 'a, b'", "claude -p"),
    )
    for variable, value in given.as_environment().items():
        monkeypatch.setenv(variable, value)
    assert Settings() == given


@pytest.mark.parametrize("name", ["SPECIATE_RETAIN_DAYS", "SPECIATE_AUDIT_DAYS"])
def test_more_days_than_a_calendar_holds_are_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1e6")
    with pytest.raises(ConfigurationError, match="36525"):
        load_settings()


def test_another_system_than_linux_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ConfigurationError, match="Linux only"):
        _ = Settings().slots
