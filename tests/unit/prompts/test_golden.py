"""Prompts of every template equal those in ``golden/``."""

from __future__ import annotations

import pytest

from tests.unit.prompts.golden import CASES, FOLDER, golden


@pytest.mark.parametrize("name", CASES)
def test_the_prompt_is_the_expected_one(name: str) -> None:
    expected = (FOLDER / f"{name}.txt").read_bytes()
    assert golden(**CASES[name]).encode() == expected, (
        "review the difference, then run python -m tests.unit.prompts.golden"
    )


def test_no_expected_prompt_is_obsolete() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)
