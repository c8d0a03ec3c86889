"""The report of readable completions counts completions and names the reasons of the others."""

from __future__ import annotations

from experiments.readable.report import report


def test_a_completion_with_one_readable_answer_is_readable() -> None:
    lines = [
        {"form": "multi", "reasons": ["truncated", None]},
        {"form": "multi", "reasons": ["truncated"]},
        {"form": "diff", "reasons": ["diff_malformed"]},
    ]
    _, _, multi, diff = report(lines).splitlines()
    assert multi.startswith("| multi | 2 | 1 (50 %) | 9–91 % | truncated 1 |")
    assert diff.startswith("| diff | 1 | 0 (0 %) | 0–79 % | diff_malformed 1 |")
