"""The comparison of learning and frozen policies: the plan is paired, and the report uses the seed as its unit."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from experiments.learning.plan import (
    ARMS,
    FROZEN,
    TASKS,
    Job,
    Plan,
    declared_jobs,
    number_of_jobs,
    positions,
    problem_at,
    solvable,
)
from experiments.learning.report import results, write_results
from speciate.training.tasks.programs import PROGRAMS

PLAN = Plan(problems=4, seeds=3, answers=100)


def test_every_arm_meets_every_problem_and_seed() -> None:
    jobs = list(declared_jobs(PLAN, lambda _, place: 10 + place))
    assert len({job.key for job in jobs}) == len(jobs) == number_of_jobs(PLAN)
    assert Counter(job.arm for job in jobs) == dict.fromkeys(ARMS, 3 * 2 * (4 + 1))
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs), "whole seeds come first"


def test_unsolvable_programs_are_left_out() -> None:
    chosen = list(islice(positions("programs", 400), 20))
    assert all(solvable(PROGRAMS, problem_at("programs", number)) for number in chosen)
    assert chosen[-1] > 419
    assert list(islice(positions("maze", 200), 3)) == [200, 201, 202]


def search(arm: str, number: int, seed: int, unlocked: int | None, seconds: float = 2.0) -> dict[str, Any]:
    job = Job("search", "maze", arm, seed, number)
    return {"key": job.key, "kind": "search", "task": "maze", "arm": arm, "seed": seed, "number": number,
            "unlocked": unlocked, "seconds": seconds, "steps": 2}  # fmt: skip


def campaign(arm: str, seed: int, fresh: list[int | None], task: str = "programs") -> dict[str, Any]:
    job = Job("campaign", task, arm, seed)
    return {"key": job.key, "kind": "campaign", "task": task, "arm": arm, "seed": seed, "number": 0,
            "fresh": fresh, "seconds": 9.0, "steps": 5}  # fmt: skip


def rows(text: str, heading: str) -> dict[tuple[str, ...], str]:
    section = text.split(f"### {heading}")[1].split("###")[0]
    cells = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {(cell[0][2:], *cell[1:3]): " | ".join(cell[2:]) for cell in cells}


def test_the_report_compares_within_problems_and_tests_over_seeds() -> None:
    # Of four problems the frozen policy unlocks one within the 100 answers, and one later, after 3 of 9 seconds.
    frozen = {1: (50, 1.0), 2: (200, 3.0), 3: (None, 9.0), 4: (None, 9.0)}
    lines = [search(FROZEN, number, seed, *frozen[number]) for number in frozen for seed in range(3)]
    learned = {1: 50, 2: 90, 3: None, 4: None}
    lines += [
        search("grpo", number, seed, 80 if (number, seed) == (3, 0) else learned[number], 4.0)
        for number in learned
        for seed in range(3)
    ]
    lines.append(search("grpo", 5, 0, 7))
    text = results(PLAN, lines)
    assert "24 of 180 declared" not in text, "the unpaired search is done, too"
    assert "25 of 180 declared jobs are done" in text
    equal_answers = rows(text, "One problem, equal answers")["maze", "grpo", "12"]
    # Three seeds, all better: of the 8 sign patterns two are as extreme.
    assert equal_answers == "12 | 25.0 % | 58.3 % | +50.0/+25.0/+25.0 | +33.3 % | 0.25 | 0 / 4 | 0.12 | 4.0 |"
    # A learning search takes 4 seconds for all its answers. Within them the frozen policy unlocks the second problem.
    equal_seconds = rows(text, "One problem, equal processor seconds")["maze", "grpo", "12"]
    assert "12 | 50.0 % | 58.3 % | +25.0/+0.0/+0.0 | +8.3 % |" in equal_seconds


def test_the_end_of_a_campaign_is_compared_with_its_beginning() -> None:
    lines = [campaign(FROZEN, seed, [3, 60, None, None], task) for seed in range(3) for task in TASKS]
    lines += [campaign("entropic", seed, [3, 6, 64, 65 if seed else 60], task) for seed in range(3) for task in TASKS]
    text = results(PLAN, lines)
    found = rows(text, "Campaign")
    assert "3 | 25.0 % | 50.0 % | +25.0/+25.0/+25.0 | +25.0 % | 0.25" in found["maze", "8", "entropic"]
    assert "3 | 50.0 % | 83.3 % | +50.0/+25.0/+25.0 |" in found["programs", "64", "entropic"]
    assert found["programs", "64", "vpo"].startswith("vpo | 0 | – |")


def test_frozen_searches_that_end_too_early_are_counted() -> None:
    lines = [search(FROZEN, 1, 0, None, 1.5), search("grpo", 1, 0, None, 2.0)]
    assert "In 1 pairs the frozen search had spent its 600 answers" in results(PLAN, lines)


def test_the_page_keeps_its_declaration(tmp_path: Path) -> None:
    page = tmp_path / "learning.md"
    page.write_text("# Declared\n\nThe plan.\n\n## Results\n\nNone.\n")
    lines = [search(arm, 1, 0, 1) for arm in (FROZEN, "grpo")]
    write_results(page, PLAN, lines)
    text = page.read_text()
    assert text.startswith("# Declared\n\nThe plan.\n\n## Results\n\n2 of 180")
    write_results(page, PLAN, lines)
    assert page.read_text() == text


def test_a_job_is_done_by_the_code_of_the_service() -> None:
    pytest.importorskip("torch")
    from experiments.learning.service import local_service

    plan = Plan(taught=2, turn=64, fresh=2, tries=16)
    with local_service() as service:
        job = Job("search", "programs", "grpo", 3, 10_003)
        found, again = service.search(job, 192), service.search(job, 192)
        taught = service.campaign(Job("campaign", "programs", "vpo", 3), plan)
        still = service.campaign(Job("campaign", "programs", "frozen_sets", 3), plan)
    assert (found.unlocked, found.answers, found.state.step) == (again.unlocked, again.answers, again.state.step)
    assert found.state.step >= 1
    assert found.state.ended is None
    assert found.seconds > found.state.seconds / 10
    assert taught["steps"] >= 1
    assert taught["ended"] is None
    assert still["steps"] == 0
    assert len(taught["fresh"]) == len(still["fresh"]) == 2
