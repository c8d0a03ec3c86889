"""Task ``python-choices``: three functions of one step, of which an answer may choose any.

A reward is the share of the hidden tests that an answer passes for one of the functions. The three differ on every
input, so no program passes a test of two of them, and each needs a specialist: the trade-off that ``python`` lacks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from speciate.domain.problem import Problem
from speciate.domain.values import digest_of
from speciate.training.tasks import python_steps
from speciate.training.tasks.python import FAMILIES, PROBES, PythonTask
from speciate.training.tasks.task import Content, Split, drawn_problems

CHOICES: Final = ("first", "second", "third")
TESTS: Final = 4
_TRIES: Final = 40


@dataclass(frozen=True)
class ChoicesTask(PythonTask):
    name: str = "python-choices"

    rewards: ClassVar[tuple[str, ...]] = CHOICES
    max_tokens: ClassVar[int] = 80

    def with_solutions(self, split: Split, count: int, *, start: int = 0) -> Iterator[tuple[Problem, tuple[str, ...]]]:
        for number, content in drawn_problems(self.name, split, count, start, self._draw, key=_behaviours):
            programs = tuple(python_steps.solution(chain) for chain in _chains(content))
            yield _problem(f"{self.name}-{split}-{number}", content), programs

    def _draw(self, rng: np.random.Generator) -> Content:
        while True:
            family = list(FAMILIES)[int(rng.integers(len(FAMILIES)))]
            kind = FAMILIES[family]
            chains = [python_steps.draw_chain(kind, 1, rng) for _ in CHOICES]
            results = [
                (value, [repr(python_steps.run(chain, value)) for chain in chains])
                for value in python_steps.draw_inputs(kind, _TRIES, rng)
            ]
            tests = [(value, texts) for value, texts in results if len(set(texts)) == len(CHOICES)][:TESTS]
            # A constant must not pass most tests of a function.
            if len(tests) == TESTS and all(len(set(column)) > 2 for column in zip(*(t for _, t in tests), strict=True)):
                steps = [list(step) for (step,) in chains]
                return {"family": family, "steps": steps, "inputs": [value for value, _ in tests]}


def _chains(content: Content) -> list[python_steps.Chain]:
    return [((step, k),) for step, k in content["steps"]]


def _behaviours(content: Content) -> object:
    """Return what the three functions do, in any order: such problems belong to one split."""
    kind = FAMILIES[content["family"]]
    done = [repr(python_steps.behaviour(chain, PROBES[kind])) for chain in _chains(content)]
    return [kind, sorted(done)]


def _problem(slug: str, content: Content) -> Problem:
    family = content["family"]
    chains = _chains(content)
    listed = "; ".join(f"({i}) {python_steps.phrases(chain)[0]}" for i, chain in enumerate(chains, 1))
    return Problem.model_validate(
        {
            "slug": slug,
            "title": f"One of three Python functions on {family}",
            "description": f"Define a function solve(x) where x is {FAMILIES[family]} that does one of these, and"
            f" returns the result: {listed}. Any one of the three is accepted.",
            "source": f"Task python-choices, family {family}, behaviour {digest_of(_behaviours(content))[:16]}.",
            "kind": "cases",
            "entry_point": "solve",
            "objectives": [{"name": name} for name in CHOICES],
            "weights": dict.fromkeys(CHOICES, 1.0),
            "targets": [
                {"name": f"all_{name}", "rule": f"{name} >= 1", "unlock": i == 0} for i, name in enumerate(CHOICES)
            ],
            "limits": {"wall_s": 2, "cpu_s": 2},
            "cases": [
                {"input": [value], "expected": python_steps.run(chain, value), "reward": name, "hidden": True}
                for name, chain in zip(CHOICES, chains, strict=True)
                for value in content["inputs"]
            ],
        }
    )
