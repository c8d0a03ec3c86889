"""Sample the held-out answers of a policy as it is trained and served, and store them in a few kilobytes.

An answer is three digits, how many of four tests it passes for each of the three functions, or a sign for what has no
rewards. A file of one policy has a line about it, and one line for each problem and form of the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from experiments.declared_runs import Line, read_lines
from experiments.real_model.plan import SET, TASK, Plan
from experiments.smollm2.plan import held_out
from speciate.domain.arrays import FloatArray
from speciate.domain.problem import Problem
from speciate.prompts.parse import Answer
from speciate.prompts.rejection import Reason
from speciate.training.config import TrainConfig
from speciate.training.tasks import Task
from speciate.training.tasks.choices import CHOICES, TESTS

MISSING, REPEATED, UNREADABLE = "-", "=", "?"
FORMS: Final = {"singles": 1, "sets": SET}
"""Forms of the prompt with the answers that they ask for."""
TEMPERATURE: Final = 0.8
_AT_ONCE: Final = 20
"""Problems of one generation."""


@dataclass(frozen=True)
class Answers:
    """Answers of a policy to N problems, asked in one form: R rollouts of m answers each."""

    rewards: FloatArray
    """Shape (N, R, m, k); zero for what has no rewards."""
    signs: NDArray[np.str_]
    """``MISSING``, ``REPEATED``, ``UNREADABLE`` or nothing, shape (N, R, m)."""
    tokens: NDArray[np.int64]
    """Completion tokens with those of the scaffold, shape (N, R)."""


def sampler_of(
    task: Task, config: TrainConfig, model: Any, tokenizer: Any, problems: Sequence[Problem], folder: Path, *, cpu: bool
) -> Any:
    """Return a trainer that only samples; ``written`` are the tokens of its last rollouts."""
    from speciate.training.trainer import VectorTrainer  # takes seconds to import, and reports do without

    class Sampler(VectorTrainer):
        def _generate(self, prompts: list[Any]) -> Any:
            output = super()._generate(prompts)
            self.written = output[1]
            return output

    return Sampler(task, config, model, tokenizer, problems, folder, cpu=cpu, callbacks=[])


def sampled_lines(
    plan: Plan, task: Task, model: Any, tokenizer: Any, forms: Sequence[str], seed: int, folder: Path, *, cpu: bool
) -> Iterator[Line]:
    """Yield the answers of a model, base and adapter merged, in the order of problems within each form."""
    problems = held_out(TASK, plan.problems)
    for form in forms:
        m = FORMS[form]
        recipe = plan.config("grpo" if m == 1 else "vpo", seed)
        config = replace(recipe, group=plan.answers // m, temperature=TEMPERATURE, lora_rank=0, kl=0.0, micro_batch=0)
        sampler = sampler_of(task, config, model, tokenizer, problems, folder, cpu=cpu)
        for start in range(0, len(problems), _AT_ONCE):
            part = range(start, min(start + _AT_ONCE, len(problems)))
            sampler.rng = np.random.default_rng([seed, m, start])
            answers = sampler.sample_answers(part)
            tokens = np.reshape([*map(len, sampler.written)], (len(part), -1)).tolist()
            written = _written(task, [problems[i] for i in part], answers, m)
            for number, text, sizes in zip(part, written, tokens, strict=True):
                yield {"form": form, "problem": problems[number].slug, "answers": text, "tokens": sizes}


def _written(
    task: Task, problems: Sequence[Problem], answers: Sequence[Sequence[Sequence[Answer]]], m: int
) -> Iterator[str]:
    """Yield the answers to each problem as text: rollouts separated by spaces."""
    programs = [[a.program for rollout in each for a in rollout if a.failure is None] for each in answers]
    scores = task.score(list(zip(problems, programs, strict=True)))
    for rollouts, vectors in zip(answers, scores, strict=True):
        passed = iter(vectors)
        slots = [[_sign(a) or _digits(next(passed)) for a in one] + [MISSING] * (m - len(one)) for one in rollouts]
        yield " ".join("".join(each) for each in slots)


def _sign(answer: Answer) -> str:
    if answer.failure is None:
        return ""
    return REPEATED if answer.failure.reason == Reason.DUPLICATE_IN_ROLLOUT else UNREADABLE


def _digits(vector: Sequence[float]) -> str:
    return "".join(str(round(reward * TESTS)) for reward in vector)


def read_answers(path: Path) -> tuple[Line, dict[str, Answers]]:
    """Return what a file says about its policy, and the answers by form."""
    about, *lines = read_lines(path)
    return about, {form: _read(lines, form) for form in FORMS if any(line["form"] == form for line in lines)}


def _read(lines: Sequence[Line], form: str) -> Answers:
    asked = [line for line in lines if line["form"] == form]
    slots = [[[*_slots(rollout)] for rollout in line["answers"].split()] for line in asked]
    signs = np.array([[["" if s.isdigit() else s for s in rollout] for rollout in each] for each in slots])
    none = "0" * len(CHOICES)
    digits = [[[[*map(int, s if s.isdigit() else none)] for s in rollout] for rollout in each] for each in slots]
    return Answers(np.array(digits) / TESTS, signs, np.array([line["tokens"] for line in asked]))


def _slots(rollout: str) -> Iterator[str]:
    place = 0
    while place < len(rollout):
        size = len(CHOICES) if rollout[place].isdigit() else 1
        yield rollout[place : place + size]
        place += size


def write_lines(path: Path, lines: Iterator[Line]) -> None:
    """Write a file that is there when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    with draft.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    draft.replace(path)
