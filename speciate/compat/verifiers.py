"""Write a problem as an environment package for Prime Intellect's ``verifiers`` 0.4 (its API ``verifiers.v1``).

The package holds the problem, a taskset of prompts and a reward function for each objective. It scores completions with
``speciate.runs.environment``.
"""

from __future__ import annotations

import json
from pathlib import Path
from string import Template
from typing import Final

from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.problems.writing import write

_PYPROJECT: Final = Template("""\
[project]
name = "$name"
version = "0.1.0"
description = $title
requires-python = ">=3.11"
dependencies = ["speciate", "verifiers>=0.4,<0.5"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["$package"]
""")
_INIT: Final = Template('''\
"""Environment of the problem $slug."""

from $package.taskset import ProblemTaskset

__all__ = ["ProblemTaskset"]
''')
_README: Final = Template("""\
# $name

An environment for [verifiers](https://github.com/PrimeIntellect-ai/verifiers), made of the problem `$slug`
by `speciate problems export`. Completions are scored in Speciate's sandbox on the machine that runs the environment.

```sh
pip install -e .
vf-eval $name -m MODEL -n 3 --env.agent.harness.id null --env.agent.runtime.type subprocess \\
    --client.base-url http://localhost:8000/v1 --client.api-key-var OPENAI_API_KEY --no-rich
```

| reward function | weight | objective |
|---|---|---|
$table

$weights
A reward is the objective's value normalized by its range, higher is better, and 0 if the completion fails or violates
a constraint. Metrics: the objectives in their own units, `feasible`, `unlocked` (meets the unlock target) and `failed`.
Change a weight with `--env.taskset.task.rewards.reward_NAME.weight`, the number of prompts with
`--env.taskset.num-prompts`.
""")
_TASKSET: Final = Template('''\
"""Prompts and rewards of the problem $slug."""

import asyncio
import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import verifiers.v1 as vf

from speciate.domain.problem import Problem
from speciate.ports.evaluator import EvaluatorClient
from speciate.process_roots import make_importable
from speciate.runs.environment import environment_prompts, score_completion
from speciate.settings import load_settings

PROBLEM = Problem.model_validate_json(Path(__file__).with_name("problem.json").read_text(encoding="utf-8"))


@cache
def evaluator() -> EvaluatorClient:
    """Open the sandbox of SPECIATE_SANDBOX, by default the strongest one that works."""
    make_importable()
    from evaluators.evaluator_factory import open_evaluator

    settings = load_settings()
    return open_evaluator(settings.sandbox, settings)


class ProblemData(vf.TaskData):
    """A prompt of the problem."""


class ProblemTask(vf.Task[ProblemData]):
    """Asks for a program and scores the reply."""

    @vf.metric
    async def measured(self, trace: vf.Trace) -> dict[str, float]:
        """Evaluate the reply. verifiers computes metrics before rewards, which read the score."""
        score = await asyncio.to_thread(score_completion, PROBLEM, trace.last_reply, evaluator())
        trace.info["speciate"] = dataclasses.asdict(score)
        flags = {"feasible": score.feasible, "unlocked": score.unlocked, "failed": score.failure is not None}
        return {**score.measured, **{name: float(flag) for name, flag in flags.items()}}
$rewards

class ProblemConfig(vf.TasksetConfig):
    """Options of the taskset."""

    num_prompts: int = 16
    """Most prompts: they differ in wording only, and a wording is listed once."""


class ProblemTaskset(vf.Taskset[ProblemTask, ProblemConfig]):
    """The prompts of the problem."""

    def load(self) -> Iterator[ProblemTask]:
        """Yield a task for each prompt."""
        for i, prompt in enumerate(environment_prompts(PROBLEM, self.config.num_prompts)):
            data = ProblemData(id=f"$slug-{i}", prompt=prompt.user, system_prompt=prompt.system or None)
            yield ProblemTask(data, self.config.task)
''')
_REWARD: Final = Template('''
    @vf.reward(weight=$weight)
    async def reward_$objective(self, trace: vf.Trace) -> float:
        """Return the normalized objective $objective, higher is better."""
        return trace.info["speciate"]["rewards"]["$objective"]
''')


def write_verifiers(problem: Problem, directory: Path) -> list[Path]:
    """Write the package, and return its files."""
    if problem.external_stage is not None:
        raise InvalidInputError(
            f"problem {problem.slug} has external evaluation: an environment scores completions in the sandbox."
        )
    name = f"speciate-{problem.slug}"
    package = name.replace("-", "_")
    selected = [objective.name for objective in problem.space.selected]
    declared = problem.weight_vector
    weights = [float(w) for w in (declared if declared is not None else [1.0 / len(selected)] * len(selected))]
    rows = zip(selected, weights, strict=True)
    values = {
        "name": name,
        "package": package,
        "slug": problem.slug,
        "title": json.dumps(problem.title, ensure_ascii=False),
        "table": "\n".join(f"| `reward_{each}` | {weight:.6g} | `{each}` |" for each, weight in rows),
        "weights": "The weights are those that the problem declares.\n"
        if declared is not None
        else "The problem declares no weights, so that every objective has the same.\n",
        "rewards": "".join(
            _REWARD.substitute(objective=each, weight=repr(weight))
            for each, weight in zip(selected, weights, strict=True)
        ),
    }
    texts = {
        "pyproject.toml": _PYPROJECT.substitute(values),
        "README.md": _README.substitute(values),
        f"{package}/__init__.py": _INIT.substitute(values),
        f"{package}/taskset.py": _TASKSET.substitute(values),
        f"{package}/problem.json": json.dumps(problem.stored_json(), indent=1, ensure_ascii=False) + "\n",
    }
    return write(texts, directory)
