"""The experiment on a pretrained model: equal answers, the content of its warm-up, its gate, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.real_model.answers import FORMS, read_answers, write_lines
from experiments.real_model.plan import BASE, PLANS, PRIMARY, SET, SETS, Job, Plan
from experiments.real_model.report import (
    compare,
    met_for_tokens,
    met_within,
    read_runs,
    token_ceiling,
    verdict,
    write_page,
)
from speciate.prompts.parse import Answer
from speciate.prompts.rejection import Reason, rejected
from speciate.training.tasks import Split
from speciate.training.tasks.choices import ChoicesTask

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_all_arms_have_as_many_answers_of_the_same_length(plan: Plan) -> None:
    recipes = {arm: (plan.config(arm, 1), SET if arm in SETS else 1) for arm in plan.runs}
    assert {each.batch * m for each, m in recipes.values()} == {plan.prompts * plan.sets * SET}
    assert {each.max_tokens / m for each, m in recipes.values()} == {plan.max_tokens}
    assert (
        len({(each.prompts, each.steps, each.learning_rate, each.kl, each.seed) for each, _ in recipes.values()}) == 1
    )
    assert plan.answers % SET == 0


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_every_part_of_the_jobs_is_balanced(plan: Plan) -> None:
    jobs = list(plan.jobs())
    assert jobs[0] == Job(BASE, 0)
    assert len(jobs) == len(set(jobs)) == 1 + sum(plan.runs.values())
    for count in range(len(jobs)):
        trained = [sum(job.arm == arm for job in jobs[:count]) for arm in PRIMARY]
        assert abs(trained[0] - trained[1]) <= 1


def test_three_of_five_demonstrations_are_wrong() -> None:
    pytest.importorskip("trl", reason="needs the extra 'train'")
    from experiments.real_model.warm import ErringTask

    right = [programs for _, programs in ChoicesTask().with_solutions(Split.TRAIN, 40)]
    drawn = [programs for _, programs in ErringTask().with_solutions(Split.TRAIN, 40)]
    assert all(len({*programs}) == len(programs) for programs in drawn)
    shares = [
        np.mean([each in references for each in programs]) for references, programs in zip(right, drawn, strict=True)
    ]
    assert np.mean(shares) == pytest.approx(0.4, abs=0.01)
    (_, again), *_ = ErringTask().with_solutions(Split.TRAIN, 1, start=7)
    assert again == drawn[7]


@dataclass(frozen=True)
class NamedTask(ChoicesTask):
    """The task with the rewards that a program names."""

    def score(self, batch: Any) -> list[list[tuple[float, ...]]]:
        return [[tuple(int(digit) / 4 for digit in text) for text in texts] for _, texts in batch]


@pytest.mark.parametrize(
    ("single", "several", "ready"),
    [
        (["400", "000", "000", "040"], ["400", "000", "000"], False),  # two of four meet a target, and one of three
        (["400", "000", "000", "000"], ["400", "000", "000", "004", "000", "000", "000", "000", "000"], True),
        (["400", "000", "000", "000"], ["400", "", "000"], False),  # a set that is not whole
        (["300", "000", "000", "000"], ["300", "000", "000"], False),
    ],
)
def test_the_gate(single: list[str], several: list[str], *, ready: bool) -> None:
    pytest.importorskip("trl", reason="needs the extra 'train'")
    from experiments.real_model.warm import judge_of

    def answer(text: str) -> Answer:
        return Answer(text, None if text else rejected(Reason.SYNTAX_ERROR, ""))

    answers = [answer(text) for text in several]
    sets = [answers[i : i + 3] for i in range(0, len(answers), 3)]
    measured = judge_of(NamedTask())([*ChoicesTask().problems(Split.TRAIN, 1)], [[[answer(s)] for s in single]], [sets])
    assert measured["ready"] == ready
    assert measured["single_first"] == pytest.approx(np.mean([text == "400" for text in single]))


def policy(folder: Path, arm: str, seed: int, rollouts: Sequence[str], tokens: int = 20) -> None:
    """Write the answers of a policy, the same to two problems."""
    curve = dict.fromkeys(("mean", "best_weighted", "answered", "entropy"), [0.25] * 40)
    about = {
        "arm": arm, "seed": seed, "curve": curve, "minutes": 12.5, "evaluation_minutes": 1.0, "base": "ab" * 32,
        "versions": {"torch": "2"},
    }  # fmt: skip
    asked = [form for form in FORMS if arm == BASE or (form == "sets") == (arm in SETS)]
    line = {"answers": " ".join(rollouts), "tokens": [tokens] * len(rollouts)}
    lines = [{"form": form, "problem": f"p{i}", **line} for form in asked for i in range(2)]
    write_lines(folder / f"{arm}-{seed}.jsonl", iter([about, *lines]))


def test_answers_are_stored_by_their_tests(tmp_path: Path) -> None:
    policy(tmp_path, "vpo", 0, ["400=-", "120?004"])
    _, answers = read_answers(tmp_path / "vpo-0.jsonl")
    sets = answers["sets"]
    assert sets.rewards.shape == (2, 2, 3, 3)
    assert sets.rewards[0].tolist() == [[[1, 0, 0], [0, 0, 0], [0, 0, 0]], [[0.25, 0.5, 0], [0, 0, 0], [0, 0, 1]]]
    assert sets.signs[1].tolist() == [["", "=", "-"], ["", "?", ""]]
    assert met_within(sets, 3).tolist() == [1, 1]  # each of the two sets meets one target
    assert met_within(sets, 6).tolist() == [2, 2]
    assert met_for_tokens(sets, 39).tolist() == [1, 1]
    assert met_for_tokens(sets, 40).tolist() == [2, 2]


def test_no_arm_runs_out_of_answers_at_equal_tokens(tmp_path: Path) -> None:
    policy(tmp_path, "vpo", 0, ["400000000"] * 10, tokens=60)
    policy(tmp_path, "grpo", 0, ["400"] * 33, tokens=10)
    assert token_ceiling(read_runs(tmp_path)) == 330


def experiment(folder: Path, vpo: Sequence[int], grpo: Sequence[int]) -> None:
    """Write runs in which so many of ten rollouts of three answers meet a target."""
    for seed, hits in enumerate(vpo):
        policy(folder, "vpo", seed, ["400004040"] * hits + ["???"] * (10 - hits))
    for seed, hits in enumerate(grpo):
        policy(folder, "grpo", seed, ["400"] * hits + ["000"] * (30 - hits))


@pytest.mark.parametrize(
    ("vpo", "grpo", "sentence"),
    [
        ([5, 5, 6, 7, 7], [0] * 5, "**VPO is ahead of GRPO, as predicted.** VPO meets 100.0 % of the targets"),
        ([0] * 5, [1, 1, 2, 3, 3], "**VPO is behind GRPO: the prediction fails.**"),
        ([5, 0, 5, 0, 5], [1, 0, 1, 1, 0], "no difference is shown.** VPO meets 60.0 %"),
        # Ahead, and enough pairs for a difference, but fewer than declared.
        ([5] * 4, [0] * 4, "**No verdict yet, 4 of 5 declared pairs of trainings.** So far VPO meets 100.0 %"),
    ],
)
def test_the_verdict_follows_from_the_numbers(tmp_path: Path, vpo: list[int], grpo: list[int], sentence: str) -> None:
    experiment(tmp_path, vpo, grpo)
    test = compare(read_runs(tmp_path), *PRIMARY)
    assert test is not None
    assert sentence in verdict(test, declared=5)
    if len(vpo) == 5:
        assert test.smallest_p == pytest.approx(2 / 252)


def test_only_seeds_of_both_arms_count(tmp_path: Path) -> None:
    experiment(tmp_path, [5, 5, 5], [0, 0])
    test = compare(read_runs(tmp_path), *PRIMARY)
    assert test is not None
    assert len(test.rates_a) == 2
    assert "No verdict yet" in verdict(None, declared=5)


def test_the_page_has_both_plans(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "cpu"
    measured = [{"step": 0, "readable": 0.8, "whole": 0.5, "success": 0.02, "ratio": 1.0}]
    write_lines(folder / "warm-up.json", iter([{"passed": True, "measured": measured, "minutes": 3}]))
    page.write_text("# Declared\n")
    write_page(page, tmp_path)
    assert "No policy is trained yet." in page.read_text()
    experiment(folder, [5, 5, 6, 7, 7], [0] * 5)
    policy(folder, BASE, 0, ["400"] * 2 + ["000"] * 28)
    write_page(page, tmp_path)
    text = page.read_text()
    assert text.startswith("# Declared\n")
    assert "## Results, plan `gpu`\n\nNot run yet." in text
    assert "**VPO is ahead of GRPO" in text
    assert "| VPO | 0.250 → 0.250 |" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| VPO | 3.6 (3.0/3.0/3.6/4.2/4.2)")]
    assert rows[0][3] == "6.0 (6.0/6.0/6.0/6.0/6.0)"


def test_the_published_page_follows_from_its_answers(tmp_path: Path) -> None:
    published = (DOCS / "evidence" / "real-model.md").read_text("utf-8")
    page = tmp_path / "real-model.md"
    page.write_text(published, "utf-8")
    write_page(page, DOCS / "evidence" / "real-model")
    assert page.read_text("utf-8") == published, "regenerate it: python -m experiments.real_model report"
