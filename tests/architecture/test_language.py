"""The tree uses the words of the glossary."""

from __future__ import annotations

from tests.architecture.language import ROOT, findings

MAX_FINDINGS = 10


def test_the_glossary_replaces_its_words() -> None:
    found = list(findings(ROOT))
    assert len(found) <= MAX_FINDINGS, "\n".join(found)
