"""Wrong arguments of ``speciate.evolve`` are named before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import speciate
from speciate.domain.errors import ConfigurationError, InvalidInputError

PROGRAM = "def solve():\n    return 0.4\n"


def score(path: str) -> float:
    raise AssertionError("scored before the arguments were checked")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"evaluation": 3}, "no argument 'evaluation'. Did you mean 'evaluations'"),
        ({"wall_s": 3}, "no argument 'wall_s'. Set limits in config="),
        ({"memory_mb": 3}, "no argument 'memory_mb'. Set limits in config="),
        ({"out": "x"}, "no argument 'out'. result.save"),
        ({"policy": "x"}, "no argument 'policy'. Name models with model="),
        ({"program": 3}, "program is 3, of type int"),
        ({"program": score}, "program is <function score"),
        ({"program": {}}, "program is {}, of type dict"),
        ({"evaluator": 3}, "evaluator is 3, of type int"),
        ({"evaluator": None}, "only beside a function as evaluator. Pass evaluator="),
        ({"program": "def f():\n    return 1\n", "evaluator": "evaluator.py"}, "Write the program to a file"),
        ({"budget": 5}, "no argument 'budget'. Limits are evaluations="),
        ({"engine": "gepa"}, "no argument 'engine'. `speciate run`"),
        ({"model": 3}, "model is 3"),
        ({"maximize": ("a", 3)}, "maximize is 3"),
        ({"model": None, "maximize": None, "strategy": "adaptive"}, "Did you mean 'adaptive_evolution'?"),
        ({"strategy_options": {"popultion": 3}}, "popultion"),
        ({"model": "gpt-5-mini"}, "Did you mean openai/gpt-5-mini?"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        speciate.evolve(**{"program": PROGRAM, "evaluator": score, "data_dir": tmp_path, **arguments})
    assert words in str(caught.value)


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"the data directory .*file/data cannot be created or written"):
        speciate.evolve(PROGRAM, score, data_dir=tmp_path / "file" / "data", progress=False)
