"""The comparison of learning and frozen policies: the plan is paired, and the report uses the seed as its unit."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from experiments.learning.plan import ARMS, FROZEN, Plan, declared_runs
from experiments.learning.report import report, write_results
from speciate.domain.values import WORD


def test_every_arm_meets_every_problem_seed_and_budget() -> None:
    runs = list(declared_runs(Plan(problems=2, seeds=3)))
    assert Counter(run.arm for run in runs) == dict.fromkeys(ARMS, 2 * 2 * 3 * 2)
    assert len({run.key for run in runs}) == len(runs)
    assert all(re.fullmatch(WORD, run.key) for run in runs), "keys of the service hold no blanks"
    assert [run.key for run in declared_runs(Plan(problems=2, seeds=3))] == [run.key for run in runs]
    assert all((run.spec["learning"] is None) == (run.arm == FROZEN) for run in runs)


def result(arm: str, problem: str, seed: int, *, unlocked: bool) -> dict[str, Any]:
    return {"task": "t", "parity": "answers", "arm": arm, "problem": problem, "seed": seed, "unlocked": unlocked,
            "steps": 2, "learning_s": 1.5}  # fmt: skip


def test_the_report_compares_within_problems_and_tests_over_seeds() -> None:
    found = [result(FROZEN, p, s, unlocked=p == "a") for p in "abcd" for s in range(3)]
    found += [result("grpo", p, s, unlocked=p in "ab" or (p == "c" and s == 0)) for p in "abcd" for s in range(3)]
    found.append(result("grpo", "unpaired", 0, unlocked=True))
    rows = {line.split(" | ")[2]: line for line in report(found).splitlines()[2:]}
    assert "| 12 | 25.0 % | – |" in rows[FROZEN]
    # Three seeds, all better: of the 8 sign patterns two are as extreme.
    assert "+50.0 %, +25.0 %, +25.0 % | 0.25 | 0 / 4 | 0.12 |" in rows["grpo"]
    assert rows["vpo"] == "| t | answers | vpo | 0 | – | – | – | – | – | – | – |"


def test_the_page_is_written_again_after_every_run(tmp_path: Path) -> None:
    page = tmp_path / "learning.md"
    page.write_text("# Declared\n\nThe plan.\n\n## Results\n\nNone.\n")
    found = [result(arm, "a", 0, unlocked=True) | {"task": "maze-9"} for arm in (FROZEN, "grpo")]
    write_results(page, found)
    text = page.read_text()
    assert text.startswith("# Declared\n\nThe plan.\n\n## Results\n")
    assert "2 of the 6,000 declared runs are done: 1 problems of maze-9, 0 problems of programs-hard, 1 of 3" in text
    assert "| maze-9 | answers | grpo | 1 | 100.0 % |" in text
    write_results(page, found)
    assert page.read_text() == text
