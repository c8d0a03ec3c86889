"""Every picture exists, is shown by a document and can be regenerated."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
_LINK = re.compile(r"\]\(([^)\s]+\.(?:png|svg))\)")


def test_pictures_are_there_and_all_of_them_are_shown() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    shown = {(page.parent / link).resolve() for page in documents for link in _LINK.findall(page.read_text())}
    assert {path for path in shown if not path.is_file()} == set()
    assert {path.name for path in FOLDER.iterdir()} == {path.name for path in shown if path.parent == FOLDER}


def test_every_screenshot_can_be_regenerated() -> None:
    # Every test worker reads this file; a browser's package takes a second to import.
    from tests.dashboard.pictures import SHOTS

    assert {path.stem for path in FOLDER.glob("*.png")} == set(SHOTS)
