"""Task ``python``: small functions on integers, lists and texts, written in Python from a description and examples.

A function is a chain of one to four steps (``python_steps.STEPS``), and the number of steps is its difficulty; those of
the task ``python-easy`` have one or two. Each step matters: without it, the function would be another one. Programs run
in the service's sandbox, and each of the eight tests is a reward. Three tests are visible.

Split: the parity of the digest of what a function *does* on probe inputs. Two chains that compute the same function are
in the same split, so no test function is trained on in other words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from speciate.domain.problem import Problem
from speciate.domain.values import digest_of
from speciate.ports.evaluator import EvaluatorClient
from speciate.training.tasks import python_steps
from speciate.training.tasks.scoring import Vector, score_by_evaluator, unlock_all
from speciate.training.tasks.task import Content, Split, drawn_problems

TESTS: Final = 8
VISIBLE: Final = 3
MOST_STEPS: Final = 4
FAMILIES: Final = {"arithmetic": python_steps.NUMBER, "lists": python_steps.LIST, "strings": python_steps.TEXT}

PROBES: Final = {kind: python_steps.draw_inputs(kind, 24, np.random.default_rng(0)) for kind in FAMILIES.values()}
"""Inputs of each type on which functions with equal results count as equal."""
_LEAST_RESULTS: Final = 4
"""Different results among the tests: a constant must not pass most of them."""


@dataclass(frozen=True)
class PythonTask:
    evaluator: EvaluatorClient | None = None
    name: str = "python"
    most_steps: int = MOST_STEPS

    rewards: ClassVar[tuple[str, ...]] = tuple(f"test_{i + 1}" for i in range(TESTS))
    answers: ClassVar[int] = 3
    max_tokens: ClassVar[int] = 160
    codec: ClassVar[str | None] = None

    def problems(self, split: Split, count: int, *, start: int = 0) -> Iterator[Problem]:
        """Yield problems of a split; families and difficulties take turns."""
        return (problem for problem, _ in self.with_solutions(split, count, start=start))

    def with_solutions(self, split: Split, count: int, *, start: int = 0) -> Iterator[tuple[Problem, tuple[str, ...]]]:
        """Yield problems with reference programs, which no part of the problem contains."""
        for number, content in drawn_problems(self.name, split, count, start, self._draw, key=_behaviour):
            yield _problem(f"{self.name}-{split}-{number}", content), (python_steps.solution(_chain(content)),)

    def score(self, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[Vector]]:
        return score_by_evaluator(self.name, self.evaluator, batch)

    def _draw(self, rng: np.random.Generator) -> Content:
        while True:
            family = list(FAMILIES)[int(rng.integers(len(FAMILIES)))]
            kind = FAMILIES[family]
            chain = python_steps.draw_chain(kind, 1 + int(rng.integers(self.most_steps)), rng)
            inputs = python_steps.draw_inputs(kind, TESTS, rng)
            if (
                _is_function(chain, kind)
                and len({repr(python_steps.run(chain, value)) for value in inputs}) >= _LEAST_RESULTS
            ):
                return {"family": family, "chain": [list(step) for step in chain], "inputs": inputs}


def _is_function(chain: python_steps.Chain, kind: str) -> bool:
    """Return True if every step matters: no chain without one of them does the same."""
    done = python_steps.behaviour(chain, PROBES[kind])
    for i in range(len(chain)):
        try:
            if python_steps.behaviour(chain[:i] + chain[i + 1 :], PROBES[kind]) == done:
                return False
        except (TypeError, ValueError, AttributeError):
            continue  # the rest does not fit together
    return True


def _chain(content: Content) -> python_steps.Chain:
    return tuple((step, k) for step, k in content["chain"])


def _behaviour(content: Content) -> object:
    kind = FAMILIES[content["family"]]
    return [kind, python_steps.behaviour(_chain(content), PROBES[kind])]


def _problem(slug: str, content: Content) -> Problem:
    chain, family = _chain(content), content["family"]
    steps = ", then ".join(python_steps.phrases(chain))
    count = f"{len(chain)} step{'s' if len(chain) > 1 else ''}"
    return Problem.model_validate(
        {
            "slug": slug,
            "title": f"A Python function on {family}",
            "description": f"Define a function solve(x) where x is {FAMILIES[family]}: {steps}, and return the result.",
            "source": f"Task python, family {family}, {count}, behaviour {digest_of(_behaviour(content))[:16]}.",
            "kind": "cases",
            "entry_point": "solve",
            "objectives": [{"name": name} for name in PythonTask.rewards],
            "weights": dict.fromkeys(PythonTask.rewards, 1.0),
            "targets": unlock_all(PythonTask.rewards),
            "limits": {"wall_s": 2, "cpu_s": 2},
            "cases": [
                {"input": [value], "expected": python_steps.run(chain, value), "reward": name, "hidden": i >= VISIBLE}
                for i, (name, value) in enumerate(zip(PythonTask.rewards, content["inputs"], strict=True))
            ],
        }
    )
