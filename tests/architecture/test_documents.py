"""The README stays short, and no document names a machine or a registry."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_no_registry_host_or_machine_path_is_named() -> None:
    host = "pypi" + ".org"
    for path in [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert host not in path.read_text(), path
        assert "/" + "work/main" not in path.read_text(), path
