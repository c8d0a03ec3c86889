"""The comparison of learning and frozen policies: the plan is paired, and the report uses the seed as its unit."""

from __future__ import annotations

from collections import Counter
from typing import Any

from experiments.learning.plan import ARMS, FROZEN, Plan, declared_runs
from experiments.learning.report import report


def test_every_arm_meets_every_problem_seed_and_budget() -> None:
    runs = list(declared_runs(Plan(problems=2, seeds=3)))
    assert Counter(run.arm for run in runs) == dict.fromkeys(ARMS, 2 * 2 * 3 * 2)
    assert len({run.key for run in runs}) == len(runs)
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
