"""Templates are compiled once for a data directory, and every time where nothing can be written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from service.dashboard.pages import environment, warm


@pytest.fixture(autouse=True)
def _fresh_environment() -> Iterator[None]:
    environment.cache_clear()
    yield
    environment.cache_clear()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the templates that are compiled."""
    names: list[str] = []
    compile_template = Environment.compile

    def record(self: Environment, source: Any, name: Any = None, *more: Any, **options: Any) -> Any:
        names.append(name)
        return compile_template(self, source, name, *more, **options)

    monkeypatch.setattr(Environment, "compile", record)
    return names


def test_a_second_start_compiles_only_the_macros(tmp_path: Path, compiled: list[str]) -> None:
    warm(tmp_path)
    assert {"run.html", "macros.html"} <= {*compiled}
    compiled.clear()
    environment.cache_clear()
    warm(tmp_path)
    assert compiled == ["macros.html"]


def test_a_damaged_file_is_written_again(tmp_path: Path, compiled: list[str]) -> None:
    warm(tmp_path)
    for kept in (tmp_path / "templates").iterdir():
        kept.write_bytes(kept.read_bytes()[:40])
    compiled.clear()
    environment.cache_clear()
    warm(tmp_path)
    assert "run.html" in compiled
    compiled.clear()
    environment.cache_clear()
    warm(tmp_path)
    assert compiled == ["macros.html"]


@pytest.mark.parametrize("place", ["missing", "file"])
def test_without_a_directory_templates_are_compiled(tmp_path: Path, compiled: list[str], place: str) -> None:
    (tmp_path / "file").write_text("")
    warm(tmp_path / place)
    assert "run.html" in compiled
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path: Path, compiled: list[str]) -> None:
    tmp_path.chmod(0o777)
    warm(tmp_path)
    assert "run.html" in compiled
    assert not [*(tmp_path / "templates").iterdir()]


def test_templates_of_other_versions_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    old = tmp_path / "templates" / "__jinja2_0.1.0.jinja3.0.0"
    old.write_bytes(b"")
    warm(tmp_path)
    assert not old.exists()
    assert [*(tmp_path / "templates").iterdir()]


def test_a_full_disk_costs_only_the_time(tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jinja2.bccache.FileSystemBytecodeCache.dump_bytecode", full)
    warm(tmp_path)
    assert "run.html" in compiled
