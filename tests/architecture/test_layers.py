"""The import contracts hold, and fail when one is broken."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("speciate", "service", "workers", "evaluators")


def _lint(root: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env={"PYTHONPATH": str(root)})


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the sources to break."""
    for name in SOURCES:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_contracts_hold(sources: Path) -> None:
    result = _lint(sources)
    assert result.returncode == 0, result.stdout
    assert "0 broken" in result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("speciate/domain/budget.py", "import speciate.runs.ledger", "Layers: processes"),
        ("speciate/search/strategy.py", "import random", "The core is pure"),
        ("speciate/prompts/parse.py", "import subprocess", "The core is pure"),
        ("speciate/runs/ledger.py", "import speciate.storage.tables", "Layers: processes"),
        ("speciate/storage/lookup.py", "import service.app", "Layers: processes"),
        (
            "speciate/search/strategies/best_of_n.py",
            "import speciate.search.strategies.islands_map_elites",
            "No strategy",
        ),
    ],
)
def test_a_violation_is_found(sources: Path, module: str, line: str, contract: str) -> None:
    path = sources / module
    path.write_text(path.read_text() + f"\n{line}\n")
    result = _lint(sources)
    assert result.returncode == 1, result.stdout
    assert contract in result.stdout.split("Broken contracts")[1]


def test_a_new_package_without_a_layer_is_found(sources: Path) -> None:
    (sources / "speciate" / "attic").mkdir()
    (sources / "speciate" / "attic" / "__init__.py").write_text("")
    result = _lint(sources)
    assert result.returncode == 1, result.stdout
    assert "attic" in result.stdout


def test_reads_end_without_rollback() -> None:
    """After a ROLLBACK psycopg has no prepared statements left, and PostgreSQL plans every query again."""
    allowed = {"speciate/storage/database.py", "speciate/storage/migrate.py"}
    found = {
        str(path.relative_to(ROOT))
        for name in SOURCES
        for path in (ROOT / name).rglob("*.py")
        if "engine.connect()" in path.read_text("utf-8")
    }
    assert found == allowed, "use speciate.storage.database.reading"
