"""The comparison of trained SmolLM2 adapters: plan, policies and report."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments.smollm2.__main__ import base_policy, policy, serve_command, training_rows, write_page
from experiments.smollm2.plan import (
    BASE,
    EVALUATIONS,
    METHODS,
    PROBLEMS,
    declared_runs,
    folder_name,
    held_out,
    policy_name,
    train_command,
)
from experiments.smollm2.report import report, samples_table, scores_of
from speciate.cli.train import build_config
from speciate.domain.values import WORD
from speciate.policies.manifest import Manifest, write_manifest


def test_every_policy_meets_every_problem() -> None:
    runs = list(declared_runs())
    assert Counter(run.arm for run in runs) == dict.fromkeys((BASE, *METHODS), PROBLEMS)
    assert len({run.key for run in runs}) == len(runs)
    assert all(re.fullmatch(WORD, run.key) for run in runs)
    assert len({run.problem.source.rpartition("behaviour ")[2] for run in runs if run.problem.source}) == PROBLEMS
    assert all(" 1 step" in str(p.source) or " 2 steps" in str(p.source) for p in held_out())


@pytest.mark.parametrize("method", METHODS)
def test_the_recipe_is_one_that_speciate_train_accepts(method: str, tmp_path: Path) -> None:
    command = train_command("speciate", method, 1, Path("base"), tmp_path / "out", gpu=True)
    settings = [command[i + 1] for i, word in enumerate(command) if word == "--set"]
    config = build_config(method, "python-easy", 0, 40, settings)
    assert config.max_tokens == (192 if method == "vpo" else 64)
    assert command[-1] == "--gpu"
    (tmp_path / "out").mkdir()
    again = train_command("speciate", method, 1, Path("base"), tmp_path / "out")
    assert again == [*command[:-1], "--resume"]


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    for method in METHODS:
        folder = tmp_path / folder_name(method)
        folder.mkdir()
        (folder / "adapter_model.safetensors").write_bytes(method.encode())
        answers = 3 if method == "vpo" else 1
        metrics = tuple({"step": float(i), "mean": i / 10, "best": 0.5, "entropy": 1.0} for i in range(40))
        write_manifest(
            folder,
            Manifest(task="python-easy", method=method, max_tokens=64, answers_per_rollout=answers,
                     prompt_style="prefilled", seed=0, steps=40, metrics=metrics),  # type: ignore[arg-type]
        )  # fmt: skip
    return tmp_path


def test_policies_are_asked_as_trained(trained: Path) -> None:
    base, grpo, vpo = (
        base_policy(trained, "http://127.0.0.1:8000/v1"),
        *(policy(trained / f"{m}-0", m, "http://127.0.0.1:8000/v1") for m in ("grpo", "vpo")),
    )
    assert (vpo.answers_per_rollout, vpo.sampling.max_tokens) == (3, 192)
    assert base.sampling == grpo.sampling
    assert (base.prompt_style, base.answers_per_rollout) == (grpo.prompt_style, 1)
    assert (base.model, base.checkpoint_digest, base.options) == ("smollm2-base", None, {"concurrency": 64})
    assert (grpo.model, grpo.options) == ("smollm2-grpo", {"base_model": "smollm2-base", "concurrency": 64})
    assert {f"{policy_name(m)}={trained.resolve() / m}-0" for m in METHODS} <= {*serve_command(Path("m"), trained)}


def run(arm: str, problem: str, passed: int) -> dict[str, Any]:
    vectors = [[1.0] * 8] * passed + [[0.5] * 8] * 2 + [None] * (EVALUATIONS - passed - 2)
    return {"key": f"{arm}/{problem}", "arm": arm, "problem": problem, "vectors": vectors, "unlocked": passed > 0,
            "tokens": 1000, "seconds": 2.5}  # fmt: skip


def test_the_report_counts_whole_problems() -> None:
    lines = [run(arm, p, 32 if arm != BASE or p == "a" else 0) for p in "ab" for arm in (BASE, *METHODS)]
    table = report([*lines, run(BASE, "c", 1)])
    assert "2 of 100 declared problems" in table
    rows = {row.split(" | ")[0]: row for row in table.splitlines()}
    assert rows["| base"].startswith("| base | 0.266 |")  # (32 + 1) / 64 and 1 / 64, and their mean
    assert rows["| base"].endswith("| 1 | 1.5 | 2,000 | 5 |")
    assert "| grpo | 0 / 1 | 1 | 1 |" in table
    assert report([]) == "0 of 100 declared problems were answered by all policies.\n"


def test_answers_beyond_the_budget_do_not_count() -> None:
    assert scores_of([None, [1.0, 0.0], *[[1.0]] * 99]) == [0.0, 0.5, *[1.0] * (EVALUATIONS - 2)]


def test_a_missing_answer_of_a_sample_counts_as_one_that_failed() -> None:
    vectors = [[1.0, 1.0], None, [0.0, 1.0]] + [[0.0, 0.0]] * 13
    lines = [{"arm": arm, "seed": 0, "problem": "a", "vectors": vectors, "tokens": 9} for arm in ("vpo", BASE)]
    rows = samples_table(lines).splitlines()[2:4]
    assert [row.split(" | ")[0] for row in rows] == ["| base", "| vpo"]
    assert rows[0].startswith("| base | 0 | 0.023 |")  # (1 + 1/2) / 64
    assert rows[0].endswith("| 1 of 1 | 23% | 3.0 |")


def test_samples_are_compared_over_problems() -> None:
    none, all_ = [[0.0] * 8] * 2, [[1.0] * 8] * 2
    lines = [
        {"arm": arm, "seed": seed, "problem": f"p{i}", "vectors": all_ if i < solved else none, "tokens": 9}
        for arm, seed, solved in [(BASE, 0, 2), ("grpo", 0, 8), ("grpo", 1, 10)]
        for i in range(12)
    ]
    text = samples_table(lines)
    # 8 problems differ, by 1 or by ½, all in the same direction: 2 of 256 patterns are as extreme.
    assert "| grpo − base | +58.3 | 0.0078 | 0.0078 |" in text


def test_the_page_is_written_again(trained: Path) -> None:
    page = trained / "page.md"
    page.write_text("# Declared\n\nThe plan.\n\n## All seeds\n\n34 of 100\n\n## Comparison\n\n36 of 100\n")
    spent = [{"method": "grpo", "seed": 0, "wall_s": 700.4}, {"method": "grpo", "seed": 0, "wall_s": 600.0}]
    (trained / "training.jsonl").write_text("".join(json.dumps(line) + "\n" for line in spent))
    write_page(page, trained)
    text = page.read_text()
    for result in ("34 of 100", "36 of 100"):
        assert result in text, "what has no results here keeps those of the page"
    trainings = (trained / "smollm2-training.csv").read_text().splitlines()
    assert "grpo,0,40,0.450,3.450,0.500,0.500,1.000,1.000,22" in trainings
    write_page(page, trained)
    assert page.read_text() == text
    for method in METHODS:
        shutil.rmtree(trained / folder_name(method))
    assert training_rows(trained).count("\n") == 1
