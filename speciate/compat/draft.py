"""A problem read from another system's directory, and the ordinary problem written from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from speciate.compat.folder import ADAPTER, SCRIPT
from speciate.compat.naming import LANGUAGES, Packages
from speciate.domain.data_files import bytes_of
from speciate.domain.errors import ConflictError
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.problems.loader import FILE_NAME, parse_problem

MEAN: Final = "mean_of_metrics"
"""Metric with which the script for OpenEvolve reports the mean of the others."""

_CONTAINED: Final = Path(__file__).parent / "contained"
PROBE: Final = Objective(name="speciate_probe")
"""The only objective of a trial, which finds the names of the metrics."""


class Objectives(Enum):
    """Objectives of a problem whose user names none."""

    SCORE = "score"
    """Maximize ``combined_score``."""
    MEAN = "mean"
    """Maximize ``combined_score``, else the mean of all metrics."""
    ALL = "all"
    """Maximize every metric."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Contents of another system's directory, read without running anything."""

    slug: str
    title: str
    seed: str
    files: Mapping[str, str]
    """Contents of the files by path, including the evaluator and the initial program."""
    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    wall_s: float = 300.0
    memory_bytes: int = 2 << 30
    packages: Packages = field(default_factory=Packages)
    limits: Mapping[str, Any] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    """Names of metrics that must be 1."""
    undeclared: Objectives = Objectives.SCORE
    rated: tuple[str, ...] = ()
    """Metrics whose mean counts, if there is no ``combined_score``; known after a trial."""
    remarks: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reason for each file that is not part of the problem, by name."""

    def trial(self) -> Problem:
        return self._problem(self.texts((PROBE,), {}, {}))

    def written(
        self, objectives: Sequence[Objective], seed: Mapping[str, float], noise: Mapping[str, float] | None = None
    ) -> dict[str, str]:
        """Return the files of the problem by name.

        Args:
            objectives: Rewards of the problem; the unlock target uses the first one.
            seed: Rewards of the initial program, by name.
            noise: Spread of its rewards over several evaluations; a target must exceed it.
        """
        texts = self.texts(objectives, seed, noise or {})
        self._problem(texts)
        return texts

    def texts(
        self, objectives: Sequence[Objective], seed: Mapping[str, float], noise: Mapping[str, float]
    ) -> dict[str, str]:
        worst = _worst(objectives)
        script = _contained("evaluate")
        options = dict(self.options)
        if self.undeclared is Objectives.MEAN:
            options |= {} if seed and MEAN not in worst else {"mean": "value" if seed else "names"}
        for name, values in (("WORST: dict[str, float]", worst), ("OPTIONS: dict[str, Any]", options)):
            script = script.replace(f"{name} = {{}}", f"{name} = {values!r}")
        ours = {FILE_NAME: self._definition(objectives, seed, noise), SCRIPT: script, ADAPTER: _contained(self.adapter)}
        return ours | dict(self.files)

    def _problem(self, texts: Mapping[str, str]) -> Problem:
        return parse_problem(texts[FILE_NAME], texts)

    def _definition(
        self, objectives: Sequence[Objective], seed: Mapping[str, float], noise: Mapping[str, float]
    ) -> str:
        weights = mean_weights(objectives)
        first = next(o for o in objectives if not weights or o.name == MEAN)
        bound = [o.name for o in objectives if o.role is ObjectiveRole.CONSTRAINT]
        rules = [better_than(first, seed, noise), *(f"{name} >= 1" for name in bound)]
        names = "\n".join(f"  {quoted(name)}," for name in (*self.files, ADAPTER))
        return _PROBLEM.format(
            slug=self.slug,
            title=quoted(self.title),
            seed=quoted(self.seed),
            worst=WORST_SEED if _is_worst(objectives, seed) else "",
            script=SCRIPT,
            language=self._language(),
            weights=_weights(weights),
            requirements=_requirements(self.packages.requirements),
            names=names,
            description=text_block(self.description.strip()),
            objectives="\n".join(objective_text(o, seed.get(o.name)) for o in objectives),
            rule=quoted(" and ".join(rules)),
            noise=_NOISE.format(names=", ".join(sorted(noise))) if noise else "",
            limits="\n".join(f"{name} = {json.dumps(value)}" for name, value in self._limits().items()),
        )

    def _limits(self) -> dict[str, Any]:
        # `cpu_s` follows from `wall_s` and `cores`.
        return {"wall_s": float(self.wall_s), "memory_bytes": self.memory_bytes, **self.limits}

    def _language(self) -> str:
        suffix = Path(self.seed).suffix.lower()
        if suffix not in LANGUAGES:
            return ""
        return _LANGUAGE.format(name=LANGUAGES[suffix], file=f"candidate{suffix}")


def mean_weights(objectives: Sequence[Objective]) -> dict[str, float]:
    """Return weights that make the weighted sum of normalised rewards rank programs like the mean of raw rewards.

    The weight of a reward is the width of its range. Without a recorded mean there are no weights.
    """
    if not any(o.name == MEAN for o in objectives):
        return {}
    return {o.name: o.range[1] - o.range[0] for o in objectives if o.role is ObjectiveRole.OBJECTIVE}


def write(texts: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files of a problem into a new or empty directory and return their paths.

    Raises:
        ConflictError: The directory is not empty, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConflictError(f"{folder} is not empty.", remedy="Name a new directory with --into.")
        paths = [folder / name for name in texts]
        for path, content in zip(paths, texts.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes_of(content))
    except OSError as error:
        raise ConflictError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    return paths


def _contained(name: str) -> str:
    return (_CONTAINED / f"{name}.py").read_text(encoding="utf-8")


def better_than(objective: Objective, seed: Mapping[str, float], noise: Mapping[str, float]) -> str:
    """Return the rule that a reward is better than the initial program's by more than rounding and chance."""
    value = seed.get(objective.name, 0.0)
    margin = _NOISE_MARGIN * noise.get(objective.name, 0.0) + (_ROUNDING * abs(value) or _ROUNDING_AT_0)
    if objective.direction is Direction.MAXIMIZE:
        return f"{objective.name} > {value + margin!r}"
    return f"{objective.name} < {value - margin!r}"


def objective_text(objective: Objective, value: float | None) -> str:
    lines = ["[[objectives]]", f'name = "{objective.name}"']
    if objective.aim:
        lines.append(f'direction = "{objective.aim}"')
    if objective.role is not ObjectiveRole.OBJECTIVE:
        lines.append(f'role = "{objective.role.value}"')
    if objective.role is ObjectiveRole.CONSTRAINT:
        lines.append(f"limit = {objective.limit}")
    measured = "" if value is None else f"  # the initial program has {value:.6g}"
    return "\n".join([*lines, f"range = [{objective.range[0]!r}, {objective.range[1]!r}]{measured}", ""])


def _worst(objectives: Sequence[Objective]) -> dict[str, float]:
    return {o.name: o.worst for o in objectives}


def _is_worst(objectives: Sequence[Objective], seed: Mapping[str, float]) -> bool:
    """Return True if the initial program has the worst value of every reward: the import accepted that."""
    worst = _worst(objectives)
    return all(seed.get(o.name) == worst[o.name] for o in objectives if o.role is ObjectiveRole.OBJECTIVE)


def _requirements(packages: Sequence[str]) -> str:
    if not packages:
        return ""
    lines = "\n".join(f"  {quoted(package)}," for package in packages)
    return f"requirements = [                       # instead of the packages of the worker\n{lines}\n]\n"


def _weights(weights: Mapping[str, float]) -> str:
    if not weights:
        return ""
    lines = "\n".join(f"{name} = {weight!r}" for name, weight in weights.items())
    return f"{_MEAN_WEIGHTS}{lines}\n\n"


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def text_block(text: str) -> str:
    lines = [quoted(line)[1:-1].replace('\\"', '"') for line in text.split("\n")]
    return '"""\n' + "\n".join(lines).replace('"""', '""\\"') + '\n"""'


_NOISE_MARGIN: Final = 2.0
"""In spreads of the initial program's evaluations."""
_ROUNDING: Final = 1e-6
"""Relative difference that is no success: sums in another order differ, too."""
_ROUNDING_AT_0: Final = 1e-9
_NOISE: Final = """\
stochastic = true                      # evaluations of the initial program differ in {names}
confirmations = 3                      # a target counts after as many further evaluations

"""
_LANGUAGE: Final = """
[language]                             # the evaluator builds and runs programs itself, if the worker has the tools
name = "{name}"
file = "{file}"
"""
_MEAN_WEIGHTS: Final = """\
# No metric has a declared direction. OpenEvolve maximizes the mean of all, and so do these weights: each is the width
# of its metric's range. Declare directions with 'speciate problems import --reward NAME:min' to replace this rule.
[weights]
"""
WORST_SEED: Final = "worst_seed = true                      # the initial program may have the worst rewards\n"
_PROBLEM: Final = """\
# Made by 'speciate problems import'. Review it, then run: speciate problems check DIR, speciate problems add DIR

slug = "{slug}"
title = {title}
kind = "in_process"                    # the evaluator imports the candidate, so candidates can forge rewards
seed = {seed}
{worst}evaluator = "{script}"     # calls the imported evaluator, which is unchanged
{requirements}data_files = [                         # files in the working folder of candidates and evaluator
{names}
]

{noise}# The task as the policy reads it.
description = {description}

# direction: "maximize" or "minimize"; role "record": stored, never selected on; range: estimated scale of comparisons.
{objectives}
{weights}# Define success here. The default target is a candidate better than the initial program by more than
# rounding and chance.
[[targets]]
name = "better_than_initial"
rule = {rule}
unlock = true
{language}
[limits]                               # for one evaluation
{limits}
"""
