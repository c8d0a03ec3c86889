"""The comparison of mutators: the plan is balanced, and improvements are those of a run's own ranking."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from experiments.declared_runs import read_lines, write_results
from experiments.mutation.plan import ARMS, EVALUATIONS, PROBLEMS, SEEDS, declared_runs
from experiments.mutation.report import improvements, report
from speciate.problems.loader import bundled, load_problem


def test_every_arm_meets_every_problem_and_seed_with_the_same_budget() -> None:
    runs = list(declared_runs())
    assert Counter(run.arm for run in runs) == dict.fromkeys(ARMS, len(PROBLEMS) * SEEDS)
    assert len({run.key for run in runs}) == len(runs)
    assert {run.spec["budget"] for run in runs} == {EVALUATIONS}
    assert [run.arm for run in runs if "policy_choice" in run.spec] == ["both"] * len(PROBLEMS) * SEEDS


def test_improvements_follow_the_ranking_of_the_run() -> None:
    problem = load_problem(bundled()["circle-packing-26"])

    def packing(radii: float, overlap: float = 0.0) -> dict[str, float]:
        return {"sum_of_radii": radii, "smallest_radius": 0.05, "covered_area": 0.5, "overlap": overlap}

    found = [None, packing(1.7), packing(1.9), None, packing(2.6, 0.05), packing(1.8), packing(2.1), packing(2.1)]
    assert improvements(problem, found) == [2, 6]
    assert improvements(problem, [None, None]) == []


def test_the_report_names_who_improved() -> None:
    line = {"problem": PROBLEMS[0], "arm": "both", "evaluations": 64, "failed": 10, "tokens": 1200, "seconds": 60.4}
    line |= {"improvements": [[3, "smollm2-192"], [9, "program-mutator"], [12, "program-mutator"]], "best": 1.91234}
    line["asked"] = {"smollm2-192": 23, "program-mutator": 40}
    table = report([line, line | {"improvements": [], "best": None}])
    assert (
        "| circle-packing-26 | both | 2 | 128 | program-mutator 80, smollm2-192 46 | 20 |"
        " program-mutator 2, smollm2-192 1 | 12, – | 1.912, – | 2,400 | 121 |" in table
    )


def test_results_replace_the_end_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Declared\n\nThe plan.\n\n## Results\n\nNone.\n")
    write_results(page, "## Results", "One run.\n")
    assert page.read_text() == "# Declared\n\nThe plan.\n\n## Results\n\nOne run.\n"
    with pytest.raises(SystemExit, match="no heading"):
        write_results(page, "## Outcome", "")
    assert read_lines(tmp_path / "missing.jsonl") == []
