"""The documentation names every file, and the README stays short."""

from __future__ import annotations

from tests.architecture.listing import PAGE, ROOT, listing, page_with


def test_the_listing_is_up_to_date() -> None:
    assert PAGE.read_text() == page_with(listing()), "run `make docs`"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_no_registry_host_or_machine_path_is_named() -> None:
    host = "pypi" + ".org"
    for path in [ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert host not in path.read_text(), path
        assert "/" + "work/main" not in path.read_text(), path
