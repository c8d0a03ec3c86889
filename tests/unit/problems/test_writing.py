"""A written problem reads back as an equal one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speciate.domain.errors import ConflictError
from speciate.domain.files import text_of
from speciate.domain.problem import Problem
from speciate.problems.loader import known_problems, load_problem
from speciate.problems.writing import problem_texts, with_ranges_of, write

BASE: dict[str, Any] = {
    "slug": "a-problem",
    "title": 'A "title" with \\ and \x7f',
    "description": 'Three quotes: """ and \\n.\n\nEnds with a quote: "',
    "kind": "evaluator",
    "objectives": [
        {"name": "gain", "estimated": True},
        {"name": "cost", "direction": "minimize", "range": [0, 1e-7], "estimated": True},
        {"name": "overlap", "role": "constraint", "direction": "minimize", "limit": 0.0},
        {"name": "seconds", "role": "record"},
    ],
    "targets": [{"name": "good", "rule": "gain >= 1"}, {"name": "better", "rule": "gain >= 2", "unlock": True}],
    "seed_program": "def solve():\n    return 1\n",
    "evaluator": "def evaluate(candidate, context):\n    return {}\n",
}
CASES = [{"input": [None, {"a": [1.5, "\u2028"]}], "expected": None, "tolerance": 1e-9}, {"input": [], "expected": "x"}]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"description": 'Return\n"""one"""'},
        {"description": 'Quotes: "" """"" \\"""\n""""'},
        {"limits": {"wall_s": 10.0, "cpu_s": 2.0}},
        {"limits": {"cores": 4, "cpu_s": 2.0}},
        {"seed_program": "x = 1\r\ny = 2"},
        {"kind": "data", "evaluator": "def score(text, context): ...\n", "seed_program": "\ufeffx"},
        {"seed_program": text_of({"candidate.py": "import a\n", "a.py": "x = 1\n"}), "many_files": True},
        {"seed_program": text_of({"candidate.py": "", "b/a.py": "x = 1\n"}), "many_files": True},
        {"kind": "cases", "evaluator": "", "cases": CASES, "objectives": [{"name": "gain"}]},
        {
            "kind": "cases",
            "evaluator": "",
            "cases": CASES,
            "objectives": [{"name": "gain"}],
            "data_files": {"cases.json": "[]"},
        },
        {"kind": "data", "evaluator": "def score(text, context): ...\n", "seed_program": '{"a": 1}'},
        {"files": {"a.txt": "x", "problem.toml": "y"}, "data_files": {"a.txt": "z", "deep/b.bin": "data:;base64,//4="}},
        {"files": {"a b": "x"}, "data_files": {"evaluate.py": "taken", "c": "data:;base64,eA=="}},
        {"files": {"a.txt": "x", "deep/b.bin": "data:;base64,//4=", "c": "data:;base64,ZGF0YTo7YmFzZTY0LA=="}},
        {"files": {"a.txt": "x\r", "../b": "y", "c": "data:;base64,no", "d/": "z"}},
        {"requirements": ["numpy>=2", "networkx==3.4"], "preload": ["numpy"]},
        {"requirements": ["numpy>=2"], "limits": {"wall_s": 7.5, "cores": 3}, "stochastic": True, "confirmations": 0},
        {"language": "rust", "seed_program": "fn main() {}\n"},
        {"language": {"name": "Odd", "file": "main.odd", "run": ["odd", "main.odd"]}, "seed_program": "go\n"},
        {"prompts": {"change_requests": "Shorter.\n"}, "carry": "best", "worst_seed": True},
        {"weights": {"gain": 2.0, "cost": 0.0}, "objectives": [{"name": "gain"}, {"name": "cost"}]},
        {
            "stages": [
                {"name": "one", "objectives": ["gain"], "needs": "gain > 0"},
                {"name": "two", "objectives": ["c"]},
            ],
            "objectives": [{"name": "gain"}, {"name": "c", "range": [0.0, 1.0]}],
            "evaluator": "def evaluate_one(c, x): ...\ndef evaluate_two(c, x): ...\n",
        },
    ],
)
def test_a_problem_survives_its_directory(tmp_path: Path, changes: dict[str, Any]) -> None:
    problem = Problem.model_validate(json.loads(json.dumps(BASE | changes)))
    write(problem_texts(problem), tmp_path / "written")
    read = load_problem(tmp_path / "written")
    assert read == problem
    assert read.digest == problem.digest
    assert [*tmp_path.iterdir()] == [tmp_path / "written"]


@pytest.mark.parametrize("slug", known_problems())
def test_bundled_problems_survive(tmp_path: Path, slug: str) -> None:
    problem = load_problem(known_problems()[slug])
    write(problem_texts(problem), tmp_path / slug)
    assert load_problem(tmp_path / slug).digest == problem.digest


def test_estimated_ranges_are_declared_from_what_was_seen() -> None:
    problem = Problem.model_validate(BASE)
    seen = [
        {"gain": 7.0, "cost": 3.0, "overlap": 0.0, "seconds": 9.0},
        {"gain": -2.0, "cost": -1.0, "overlap": 5.0, "seconds": 1.0},
    ]
    assert [o.range for o in with_ranges_of(problem, seen).objectives] == [(0, 7), (-1, 1e-7), (0, 1), (0, 1)]
    assert not any(o.estimated for o in with_ranges_of(problem, []).objectives)


def test_a_directory_with_files_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ConflictError, match="is not empty"):
        write({"problem.toml": ""}, tmp_path)
    with pytest.raises(ConflictError, match="cannot be written"):
        write({"problem.toml": ""}, tmp_path / "mine.txt" / "below")
