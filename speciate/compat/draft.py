"""A problem read from another system's directory, and the ordinary problem written from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from speciate.compat.folder import ADAPTER, SCRIPT
from speciate.compat.naming import LANGUAGES, Packages
from speciate.domain.numbers import short_number
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.target import BETTER, Target
from speciate.problems.loader import FILE_NAME, parse_problem
from speciate.problems.writing import objective_json, toml_text

MEAN: Final = "mean_of_metrics"
"""Metric with which the script for OpenEvolve reports the mean of the others."""

_CONTAINED: Final = Path(__file__).parent / "contained"
PROBE: Final = Objective(name="speciate_probe")
"""The only objective of a trial, which finds the names of the metrics."""


class Objectives(Enum):
    """Objectives of a problem whose user names none."""

    SCORE = "score"
    MEAN = "mean"
    """Maximize ``combined_score``, else the mean of all metrics."""
    ALL = "all"


@dataclass(frozen=True, slots=True)
class DraftRewards:
    """Rewards of a problem, and what its initial program has."""

    objectives: Sequence[Objective]
    seed: Mapping[str, float] = field(default_factory=dict)
    """Rewards of the initial program by name; empty for a trial."""
    noise: Mapping[str, float] = field(default_factory=dict)
    """Standard deviation of those that differ between evaluations."""
    targets: Sequence[Target] = ()
    """By default one: some objective better than the initial program's, and none worse."""

    @property
    def worst(self) -> dict[str, float]:
        return {o.name: o.worst for o in self.objectives}

    @property
    def worst_seed(self) -> bool:
        """True if the initial program has the worst value of every reward, or may by its noise: that is accepted."""
        improved = [o for o in self.objectives if o.role is ObjectiveRole.OBJECTIVE]
        near = {o.name: _NOISE_LEEWAY * self.noise.get(o.name, 0.0) for o in improved}
        return all(abs(self.seed.get(o.name, math.inf) - o.worst) <= near[o.name] for o in improved)

    @property
    def weights(self) -> dict[str, float]:
        """Weights that make the weighted sum of normalised rewards rank programs like the mean of raw rewards.

        The weight of a reward is the width of its range. Without a recorded mean there are no weights.
        """
        if not any(o.name == MEAN for o in self.objectives):
            return {}
        return {o.name: o.range[1] - o.range[0] for o in self.objectives if o.role is ObjectiveRole.OBJECTIVE}

    @property
    def better(self) -> str:
        """Rule that some objective, or the mean that counts, is better than the initial program's, and none worse."""
        selected = [o for o in self.objectives if o.role is ObjectiveRole.OBJECTIVE]
        counted = [o for o in self.objectives if o.name == MEAN] or selected
        rules = [" or ".join(self._rule(o, gain=True) for o in counted)]
        if len(counted) > 1:
            rules = [*(self._rule(o, gain=False) for o in counted), f"({rules[0]})"]
        bound = [f"{o.name} >= 1" for o in self.objectives if o.role is ObjectiveRole.CONSTRAINT]
        return " and ".join((*rules, *bound))

    def _rule(self, objective: Objective, *, gain: bool) -> str:
        """Rule that a reward is better than the initial one, or no worse, by more than rounding and chance."""
        value, noise = self.seed.get(objective.name, 0.0), self.noise.get(objective.name, 0.0)
        rounding = _ROUNDING * abs(value) or _ROUNDING_AT_0
        margin = rounding + _NOISE_MARGIN * noise if gain else -(rounding + _NOISE_LEEWAY * noise)
        sign, limit = (">", value + margin) if objective.maximized else ("<", value - margin)
        return f"{objective.name} {sign}{'' if gain else '='} {short_number(limit, _RULE_DIGITS)}"


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
        return problem_of(self.texts(DraftRewards((PROBE,))))

    def texts(self, rewards: DraftRewards) -> dict[str, str]:
        script = contained("evaluate.py")
        options = dict(self.options)
        if self.undeclared is Objectives.MEAN and not (rewards.seed and MEAN not in rewards.worst):
            options |= {"mean": "value" if rewards.seed else "names"}
        for name, values in (("WORST: dict[str, float]", rewards.worst), ("OPTIONS: dict[str, Any]", options)):
            script = script.replace(f"{name} = {{}}", f"{name} = {values!r}")
        definition = toml_text(self._definition(rewards), COMMENTS)
        return {FILE_NAME: definition, SCRIPT: script, ADAPTER: contained(f"{self.adapter}.py"), **self.files}

    def _definition(self, rewards: DraftRewards) -> dict[str, Any]:
        suffix = Path(self.seed).suffix.lower()
        optional: dict[str, Any] = {
            "worst_seed": rewards.worst_seed,
            "requirements": self.packages.requirements,
            "stochastic": bool(rewards.noise),
            "confirmations": 3 if rewards.noise else None,
            "weights": rewards.weights,
            "language": LANGUAGES.get(suffix) and {"name": LANGUAGES[suffix], "file": f"candidate{suffix}"},
        }
        declared = {
            "slug": self.slug,
            "title": self.title,
            "kind": "in_process",
            "seed": self.seed,
            "evaluator": SCRIPT,
            "data_files": [*self.files, ADAPTER],
            "description": self.description.strip(),
            "objectives": list(map(objective_json, rewards.objectives)),
            "targets": [target.model_dump(exclude_defaults=True) for target in rewards.targets]
            or [{"name": BETTER, "rule": rewards.better, "unlock": True}],
            # `cpu_s` follows from `wall_s` and `cores`.
            "limits": {"wall_s": float(self.wall_s), "memory_bytes": self.memory_bytes, **self.limits},
        }
        return declared | {name: value for name, value in optional.items() if value}


def problem_of(texts: Mapping[str, str]) -> Problem:
    return parse_problem(texts[FILE_NAME], texts)


def contained(name: str) -> str:
    return (_CONTAINED / name).read_text(encoding="utf-8")


_NOISE_MARGIN: Final = 0.5
"""In standard deviations of the initial program's two or three evaluations. The best of them is at least that far above
their mean, so the target is in reach even if that is the largest possible score. Confirmations exclude luck."""
_NOISE_LEEWAY: Final = 2.0
"""Likewise, by which an objective may be worse: each confirmation is one evaluation, and an equal program must pass."""
_ROUNDING: Final = 1e-6
"""Relative difference that is no success: sums in another order differ, too."""
_ROUNDING_AT_0: Final = 1e-9
_RULE_DIGITS: Final = 7
"""Significant digits of the target's limit: rounding it takes at most half of the margin for rounding."""
COMMENTS: Final = {
    "": "Made by 'speciate problems import'. Review it, then run:"
    " speciate problems check DIR, speciate problems add DIR",
    "kind": "The evaluator imports the candidate, so candidates can forge rewards.",
    "description": "The task as the policy reads it.",
    "objectives": 'direction: "maximize" or "minimize"; role "record": stored, never selected on;'
    " range: estimated scale.",
    "weights": "No metric has a declared direction. OpenEvolve maximizes the mean of all, and so do these weights:"
    " each is the\nwidth of its metric's range. Declare directions with --maximize and --minimize instead.",
    "targets": "Define success here. By default: better than the initial program, and in no objective worse,"
    " by more than rounding and chance.",
    "language": "The evaluator builds and runs programs itself, if the worker has the tools.",
    "limits": "For one evaluation.",
}
