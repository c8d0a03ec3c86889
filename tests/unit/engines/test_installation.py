"""Engines of this machine: what a command becomes, and what its process may read."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from speciate.domain.errors import ConfigurationError, InvalidInputError
from speciate.domain.run import BUNDLED_ENGINES
from speciate.engines import installation
from speciate.engines.installation import BUNDLED, BundledEngine, from_command, install, installed


def test_engines_that_need_no_command_are_the_bundled_ones() -> None:
    assert tuple(BUNDLED) == BUNDLED_ENGINES


def test_a_command_may_read_the_files_that_it_names_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my engine.py").write_text("")
    monkeypatch.chdir(tmp_path)
    engine = from_command(f"sh {shlex.quote('my engine.py')} --seed 3 {{run}}", readable=(Path("more"),))
    assert engine.command[1:] == (str(tmp_path / "my engine.py"), "--seed", "3", "{run}")
    assert {str(tmp_path / "my engine.py"), str(tmp_path / "more")} <= {*engine.readable}
    assert {str(tmp_path), "/"}.isdisjoint(engine.readable)


def test_a_python_may_read_its_environment_and_its_library(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "own"], check=True)
    engine = from_command(f"{tmp_path}/own/bin/python x.py")
    assert {str(tmp_path / "own"), sys.base_prefix} <= {*engine.readable}
    link = tmp_path / "bin" / "python"
    link.parent.mkdir()
    link.symlink_to(engine.command[0])
    assert str(tmp_path) not in from_command(f"{link} x.py").readable


@pytest.mark.parametrize("text", ["", "no-such-command-here", "python 'x"])
def test_a_text_that_is_no_command(text: str) -> None:
    with pytest.raises(InvalidInputError):
        from_command(text)


def test_an_installation_that_fails_names_the_reason_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = BundledEngine("x.py", "", f"{tmp_path}/no-such-package")
    monkeypatch.setattr(installation, "BUNDLED", {"broken": broken})
    with pytest.raises(ConfigurationError, match="no-such-package"):
        install("broken", tmp_path)
    assert installed("broken", tmp_path) is None
    assert not (tmp_path / "engines" / "environments" / "broken").exists()
