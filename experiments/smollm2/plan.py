"""The declared training and comparison (docs/evidence/smollm2.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from experiments.declared_runs import DeclaredRun
from speciate.domain.problem import Problem
from speciate.training.tasks import Split, open_task

TASK: Final = "python-easy"
BASE: Final = "base"
METHODS: Final = ("grpo", "vpo", "vector_max_at_k")
SEEDS: Final = (0, 1, 2)
"""Seeds of the trainings; the comparison by the service is of the first."""
STEPS: Final = 40
SETTINGS: Final[dict[str, Any]] = {
    "lora_rank": 4,
    "learning_rate": 3e-4,
    "prompts": 8,
    "group": 16,
    "problems": 400,
    "kl": 0,
    "temperature": 0.8,
    "max_tokens": 64,
    "max_prompt_tokens": 512,
    "prompt_style": "prefilled",
    "micro_batch": 64,
    "save_every": 10,
}
"""Recipe of every method, as for ``speciate train --set``."""
METHOD_SETTINGS: Final[dict[str, dict[str, int]]] = {"vpo": {"max_tokens": 192}}
"""Changes of the recipe: a rollout of VPO has three answers."""
PROBLEMS: Final = 100
EVALUATIONS: Final = 64
KS: Final = (1, 2, 4, 8, 16, 32, 64)


def train_command(speciate: str, method: str, seed: int, base: Path, out: Path, *, gpu: bool = False) -> list[str]:
    """Return the command that trains a policy, or continues its training."""
    settings = SETTINGS | METHOD_SETTINGS.get(method, {})
    given = [text for name, value in settings.items() for text in ("--set", f"{name}={value}")]
    resume = ["--resume"] if out.exists() else []
    options = ["--task", TASK, "--method", method, "--seed", str(seed), "--steps", str(STEPS)]
    device = ["--gpu"] if gpu else []
    return [speciate, "train", *options, "--base", str(base), "--out", str(out), *given, *device, *resume]


def held_out(task: str = TASK, count: int = PROBLEMS) -> list[Problem]:
    """Return the first held-out problems that differ in what their functions do."""
    found: dict[str, Problem] = {}
    for problem in open_task(task).problems(Split.TEST, 10 * count):
        behaviour = (problem.source or "").rpartition("behaviour ")[2]
        found.setdefault(behaviour, problem)
        if len(found) == count:
            break
    return [*found.values()]


def declared_runs() -> Iterator[DeclaredRun]:
    """Yield the runs: problems outermost, so that an interrupted comparison has whole problems; policies innermost."""
    for number, problem in enumerate(held_out()):
        for arm in (BASE, *METHODS):
            spec = {"budget": EVALUATIONS, "strategy": "best_of_n", "lanes": 1, "batch": 64, "stop_on_unlock": False}
            key = f"smollm2/{problem.slug}/{arm}/{SEEDS[0]}"
            yield DeclaredRun(key, arm, problem, (policy_name(arm),), number, spec)


def folder_name(method: str, seed: int = SEEDS[0]) -> str:
    """Return the folder of a training within the folder of the results."""
    return f"{method}-{seed}"


def policy_name(arm: str) -> str:
    """Return the name of an arm's policy."""
    return f"smollm2-{arm.replace('_', '-')}"
