"""Documents are short, complete and linked, and name no machine or registry."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from speciate.search.strategies import STRATEGIES
from speciate.settings import Settings

ROOT = Path(__file__).parents[2]


def test_no_registry_host_or_machine_path_is_named() -> None:
    host = "pypi" + ".org"
    for path in [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert host not in path.read_text(), path
        assert "/" + "work/main" not in path.read_text(), path


def _keys(page: str) -> set[str]:
    """Return the names in the first column of a page's tables."""
    rows = re.findall(r"^\| (`[^|]*) \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_setting_is_documented() -> None:
    assert _keys("reference/settings.md") == set(Settings.model_fields)


def test_the_reference_of_problems_is_current() -> None:
    command = [sys.executable, str(ROOT / "scripts/generate_reference.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))])
def test_first_pages_are_short(page: str) -> None:
    assert len((ROOT / page).read_text().splitlines()) <= 150


def test_links_between_documents_lead_somewhere() -> None:
    link = re.compile(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    broken = [
        (page.name, to) for page in pages for to in link.findall(page.read_text()) if not (page.parent / to).exists()
    ]
    assert broken == []


def test_every_layer_is_on_the_page_of_the_architecture() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("exhaustive"))
    page = (ROOT / "docs" / "concepts" / "architecture.md").read_text()
    packages = [package for layer in layers for package in layer.split(" | ")]
    assert [package for package in packages if f"`speciate.{package}`" not in page] == []


def test_the_changelog_is_short() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 40


def test_every_strategy_option_is_documented() -> None:
    sections = (ROOT / "docs" / "reference" / "strategies.md").read_text().split("\n## ")
    documented = {section.partition("\n")[0]: section for section in sections}
    for name, strategy in STRATEGIES.items():
        options = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", documented[name], re.MULTILINE))))
        assert options == set(strategy.Config.model_fields), name
