"""Problems small enough to score in milliseconds."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.problem import Problem

MakeProblem = Callable[..., Problem]


@pytest.fixture
def make_problem() -> MakeProblem:
    def make(kind: str, names: tuple[str, ...] = ("score",), **fields: Any) -> Problem:
        return Problem.model_validate(
            {
                "slug": "test",
                "title": "Test",
                "kind": kind,
                "objectives": [name if isinstance(name, dict) else {"name": name} for name in names],
                "targets": [{"name": "all", "rule": "score >= 1", "unlock": True}],
                **fields,
            }
        )

    return make


@pytest.fixture
def sandbox(strongest: SandboxEvaluator) -> Iterator[SandboxEvaluator]:
    with closing(SandboxEvaluator(strongest.tier, author_grace_s=0.5)) as sandbox:
        yield sandbox
