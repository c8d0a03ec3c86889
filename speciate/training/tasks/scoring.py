"""Score answers of language models by the service's evaluator."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from weakref import WeakSet

import numpy as np

from speciate.domain.candidate import Evaluation
from speciate.domain.errors import EvaluatorUnavailableError, InvalidInputError
from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.runs.silent_failure import reported_error

_WORKERS: Final = min(16, os.cpu_count() or 1)
_working: Final = WeakSet[EvaluatorClient]()
"""Evaluators that have scored a batch: if one fails later, the answers may be the cause."""

Vector = tuple[float, ...]


def unlock_all(rewards: Iterable[str]) -> list[dict[str, object]]:
    """Return the only target of a problem: every reward is 1."""
    return [{"name": "everything", "rule": " and ".join(f"{name} >= 1" for name in rewards), "unlock": True}]


def score_by_evaluator(
    task: str, evaluator: EvaluatorClient | None, batch: Sequence[tuple[Problem, Sequence[str]]]
) -> list[list[Vector]]:
    """Return the normalised rewards of answers, as many as each problem has; zeros for an answer that fails.

    ``InvalidInputError``: the evaluator fails on every answer of its first batch.
    """
    if evaluator is None:
        raise EvaluatorUnavailableError(
            f"task {task!r} was opened without an evaluator.", remedy="Pass an evaluator to open_task."
        )
    texts: dict[str, dict[str, None]] = {}
    for problem, answers in batch:
        texts.setdefault(problem.digest, {}).update(dict.fromkeys(answers))
    problems = {problem.digest: problem for problem, _ in batch}
    with ThreadPoolExecutor(_WORKERS) as pool:
        evaluated = pool.map(lambda digest: _evaluated(evaluator, problems[digest], list(texts[digest])), texts)
        results = dict(zip(texts, evaluated, strict=True))
    failures = [evaluation.failure for result in results.values() for evaluation in result.values()]
    if failures and evaluator not in _working:
        faults = [failure for failure in failures if failure is not None and failure.by_evaluator]
        if len(faults) == len(failures):
            error = reported_error({"detail": faults[0].detail})
            raise InvalidInputError(
                f"the evaluator of task {task!r} fails on every answer of the first batch:"
                f" {faults[0].last_line if error is None else error.line}.",
                remedy="Correct it: docs/howto/write-evaluators.md.",
            )
        _working.add(evaluator)
    return [[_vector(problem, results[problem.digest][text]) for text in answers] for problem, answers in batch]


def _evaluated(evaluator: EvaluatorClient, problem: Problem, texts: list[str]) -> dict[str, Evaluation]:
    return dict(zip(texts, evaluator.evaluate(problem, texts, seeds=[0] * len(texts)), strict=True))


def _vector(problem: Problem, evaluation: Evaluation) -> Vector:
    if evaluation.rewards is None:
        return (0.0,) * len(problem.space.selected)
    return tuple(np.clip(problem.space.normalise([evaluation.rewards])[0], 0, 1).tolist())
