"""The page on noise follows from its data."""

from __future__ import annotations

from experiments.noise import DATA, PAGE, read, report


def test_the_page_follows_from_its_data() -> None:
    assert report(read(DATA)) in PAGE.read_text("utf-8"), "regenerate it: python -m experiments.noise --only-report"
