from pathlib import Path

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.problems.loader import load_problem
from speciate.problems.template import TemplateKind, write_template


def test_the_template_is_a_complete_problem_that_its_seed_does_not_unlock(
    strongest: SandboxEvaluator, tmp_path: Path
) -> None:
    written = write_template(tmp_path / "new" / "problem")
    problem = load_problem(written[0].parent)
    (evaluation,) = strongest.evaluate(problem, [problem.seed_program], seeds=[0])
    assert evaluation.failure is None
    assert evaluation.rewards == pytest.approx((0.15, 0.2490, 0.0), abs=1e-4)
    assert problem.targets_met(evaluation.rewards) == 0


def test_the_evaluator_of_texts_refuses_what_is_not_a_tour(strongest: SandboxEvaluator, tmp_path: Path) -> None:
    problem = load_problem(write_template(tmp_path, TemplateKind.DATA)[0])
    texts = [
        "x",
        "3",
        "[" * 9999,
        "[0]",
        '["0", "1", "2", "3", "4", "5", "6", "7", "8"]',
        "[0, true, 2, 3, 4, 5, 6, 7, 8]",
    ]
    evaluations = strongest.evaluate(problem, texts, seeds=[0] * len(texts))
    assert [e.failure and e.failure.reason for e in evaluations] == ["refused_by_evaluator"] * len(texts)


SEEDS = {"evaluator": pytest.approx((0.15, 0.2490, 0.0), abs=1e-4), "cases": (1.0, 0.0)}


@pytest.mark.parametrize("language", ["c", "C++", "javascript", "rust"])
@pytest.mark.parametrize("kind", SEEDS)
def test_a_seed_program_of_any_language_scores_as_that_in_python(
    strongest: SandboxEvaluator, tmp_path: Path, kind: str, language: str
) -> None:
    problem = load_problem(write_template(tmp_path, TemplateKind(kind), language)[0])
    assert problem.language is not None
    assert problem.language.name.lower() == language.lower()
    assert "Python" not in problem.description
    assert "solve" not in problem.description
    if not strongest.can_evaluate(problem):
        pytest.skip(f"programs in {language} need tier A and {problem.language.programs}, which are not here")
    (evaluation,) = strongest.evaluate(problem, [problem.seed_program], seeds=[0])
    assert (evaluation.failure, evaluation.rewards) == (None, SEEDS[kind])


def test_a_language_without_a_template_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"'julia': expected one of python, c, cpp, javascript, rust\..*julia"):
        write_template(tmp_path / "p", TemplateKind.CASES, "julia")
    with pytest.raises(InvalidInputError, match="omit the language"):
        write_template(tmp_path / "p", TemplateKind.DATA, "c")
    assert not (tmp_path / "p").exists()


def test_its_evaluator_refuses_what_is_not_ten_points(strongest: SandboxEvaluator, tmp_path: Path) -> None:
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
