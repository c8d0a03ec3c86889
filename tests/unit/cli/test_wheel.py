"""The wheel holds ``speciate`` alone: what needs the processes beside it says so, and the rest works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import speciate
from speciate.cli.exits import Exit

_ROOT = Path(speciate.__file__).parents[1]
_MAIN = f"""
import sys
sys.path[:] = [sys.argv.pop(1), *(path for path in sys.path if path not in {{"", {str(_ROOT)!r}}})]
from speciate.cli import main
main()
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages as the wheel leaves it."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "speciate").symlink_to(_ROOT / "speciate")
    return site


def _speciate(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", _MAIN, str(site), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(site.parent), "SPECIATE_URL": "http://127.0.0.1:9"}
    return subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("command", [("up",), ("demo",), ("problems", "check", "circle-packing-26")], ids=" ".join)
def test_what_needs_the_processes_says_where_they_are(site: Path, command: tuple[str, ...]) -> None:
    done = _speciate(site, *command)
    assert done.returncode == Exit.CONFIGURATION, done.stderr
    assert done.stderr.startswith("error: the processes service, workers, evaluators are not installed")
    assert "from a checkout" in done.stderr


def test_doctor_looks_at_the_rest(site: Path) -> None:
    done = _speciate(site, "doctor")
    assert "Traceback" not in done.stderr
    assert "not installed: service, workers, evaluators" in done.stdout
    assert "sandbox A" not in done.stdout


def test_what_asks_a_service_is_all_there(site: Path) -> None:
    done = _speciate(site, "runs", "list")
    assert done.returncode == Exit.UNREACHABLE
    assert "cannot be reached" in done.stderr
