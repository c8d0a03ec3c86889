"""Score answers of language models by the service's evaluator."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient

_WORKERS: Final = min(16, os.cpu_count() or 1)

Vector = tuple[float, ...]


def unlock_all(rewards: Iterable[str]) -> list[dict[str, object]]:
    """Return the only target of a problem: every reward is 1."""
    return [{"name": "everything", "rule": " and ".join(f"{name} >= 1" for name in rewards), "unlock": True}]


def score_by_evaluator(
    task: str, evaluator: EvaluatorClient | None, batch: Sequence[tuple[Problem, Sequence[str]]]
) -> list[list[Vector]]:
    """Return the normalised rewards of answers, as many as each problem has; zeros for an answer that fails."""
    if evaluator is None:
        raise EvaluatorUnavailableError(
            f"task {task!r} was opened without an evaluator.", remedy="Pass an evaluator to open_task."
        )
    texts: dict[str, dict[str, None]] = {}
    for problem, answers in batch:
        texts.setdefault(problem.digest, {}).update(dict.fromkeys(answers))
    problems = {problem.digest: problem for problem, _ in batch}
    with ThreadPoolExecutor(_WORKERS) as pool:
        scored = pool.map(lambda digest: _scored(evaluator, problems[digest], list(texts[digest])), texts)
        vectors = dict(zip(texts, scored, strict=True))
    return [[vectors[problem.digest][text] for text in answers] for problem, answers in batch]


def _scored(evaluator: EvaluatorClient, problem: Problem, texts: list[str]) -> dict[str, Vector]:
    vectors = dict.fromkeys(texts, (0.0,) * len(problem.space.selected))
    for text, result in zip(texts, evaluator.evaluate(problem, texts, seeds=[0] * len(texts)), strict=True):
        if result.rewards is not None:
            vectors[text] = tuple(np.clip(problem.space.normalise([result.rewards])[0], 0, 1).tolist())
    return vectors
