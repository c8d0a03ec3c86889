from pathlib import Path

import pytest

from evaluators.broker import Broker
from speciate.domain.errors import ConflictError
from speciate.problems.loader import load_problem
from speciate.problems.template import write_template


def test_the_template_is_a_complete_problem_that_its_seed_does_not_unlock(strongest: Broker, tmp_path: Path) -> None:
    written = write_template(tmp_path / "new" / "problem")
    problem = load_problem(written[0].parent)
    (evaluation,) = strongest.evaluate(problem, [problem.seed_program], seeds=[0])
    assert evaluation.failure is None
    assert evaluation.rewards == pytest.approx((0.15, 0.2490, 0.0), abs=1e-4)
    assert problem.targets_met(evaluation.rewards) == 0


def test_its_evaluator_refuses_what_is_not_ten_points(strongest: Broker, tmp_path: Path) -> None:
    problem = load_problem(write_template(tmp_path)[0])
    answers = ["3", "[[0, 0]] * 9", "[[0, True]] * 10", "[[0, 0, 0]] * 10", "[[0, 1e300]] * 10"]
    evaluations = strongest.evaluate(
        problem, [f"def solve():\n    return {a}\n" for a in answers], seeds=[0] * len(answers)
    )
    assert [e.failure and e.failure.kind.value for e in evaluations] == ["invalid_output"] * len(answers)


@pytest.mark.parametrize(
    ("directory", "slug"),
    [("my-problem", "my-problem"), ("My_Problem.v2", "my-problem-v2"), ("-ä-", "spread-points"), ("x" * 99, "x" * 80)],
)
def test_it_is_named_after_its_directory(tmp_path: Path, directory: str, slug: str) -> None:
    assert load_problem(write_template(tmp_path / directory)[0]).slug == slug


def test_files_that_are_there_are_kept(tmp_path: Path) -> None:
    (tmp_path / "seed.py").write_text("mine")
    with pytest.raises(ConflictError, match=r"seed\.py already exists"):
        write_template(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["seed.py"]
