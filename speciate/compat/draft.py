"""A problem read from another system's directory, and the ordinary problem written from it."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from speciate.compat.folder import ADAPTER, SCRIPT
from speciate.domain.errors import ConflictError, FieldError, InvalidInputError
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.problems.loader import FILE_NAME, parse_problem

_CONTAINED: Final = Path(__file__).parent / "contained"
_PROBE: Final = Objective(name="speciate_probe")
_SCORE: Final = "combined_score"
_DIRECTIONS: Final = {"max": Direction.MAXIMIZE, "min": Direction.MINIMIZE}
_NUMBER_NOTE: Final = re.compile(r"(?m)^([A-Za-z_]\w{0,79}) = (-?\d\S*)$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Draft:
    """Contents of another system's directory, read without running anything.

    Attributes:
        slug: Name of the problem.
        title: Title, one line.
        seed: File name of the initial program.
        files: Texts of the files by name, including the evaluator and the initial program.
        adapter: Script in ``contained`` that calls the evaluator.
        options: Options of that script.
        description: Task description for the policy.
        wall_s: Wall limit of one evaluation in seconds.
        memory_bytes: Memory of one evaluation in bytes.
        requirements: Packages of the evaluator; empty if the worker has them.
        constraints: Names of metrics that must be 1.
        remarks: Notes for the user.
        left_out: Reason for each file that is not part of the problem, by name.
    """

    slug: str
    title: str
    seed: str
    files: Mapping[str, str]
    adapter: str
    options: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    wall_s: float = 300.0
    memory_bytes: int = 2 << 30
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def trial(self) -> Problem:
        """Return a problem that evaluates the initial program to find the names of the metrics.

        Raises:
            InvalidInputError: The initial program or another file is invalid.
        """
        return self._problem(self.texts((_PROBE,), {}, {}))

    def written(
        self, objectives: Sequence[Objective], seed: Mapping[str, float], noise: Mapping[str, float] | None = None
    ) -> dict[str, str]:
        """Return the files of the problem by name.

        Args:
            objectives: Rewards of the problem; the unlock target uses the first one.
            seed: Rewards of the initial program, by name.
            noise: Spread of its rewards over several evaluations; a target must exceed it.

        Raises:
            InvalidInputError: The files are not a valid problem.
        """
        texts = self.texts(objectives, seed, noise or {})
        self._problem(texts)
        return texts

    def texts(
        self, objectives: Sequence[Objective], seed: Mapping[str, float], noise: Mapping[str, float]
    ) -> dict[str, str]:
        """Return the files as ``written`` does, without validating them."""
        worst = {o.name: o.range[0 if o.direction is Direction.MAXIMIZE else 1] for o in objectives}
        script = _contained("evaluate")
        for name, values in (("WORST: dict[str, float]", worst), ("OPTIONS: dict[str, Any]", dict(self.options))):
            script = script.replace(f"{name} = {{}}", f"{name} = {values!r}")
        ours = {FILE_NAME: self._definition(objectives, seed, noise), SCRIPT: script, ADAPTER: _contained(self.adapter)}
        return ours | dict(self.files)

    def _problem(self, texts: Mapping[str, str]) -> Problem:
        return parse_problem(texts[FILE_NAME], texts)

    def _definition(
        self, objectives: Sequence[Objective], seed: Mapping[str, float], noise: Mapping[str, float]
    ) -> str:
        first, bound = objectives[0], [o.name for o in objectives if o.role is ObjectiveRole.CONSTRAINT]
        better = first.direction is Direction.MAXIMIZE
        # Chance alone must not meet the target: the spread of the initial program is a margin.
        margin = _NOISE_MARGIN * noise.get(first.name, 0.0)
        level = seed.get(first.name, 0.0) + (margin if better else -margin)
        rules = [f"{first.name} {'>' if better else '<'} {level!r}", *(f"{name} >= 1" for name in bound)]
        names = "\n".join(f"  {_quoted(name)}," for name in (*self.files, ADAPTER))
        return _PROBLEM.format(
            slug=self.slug,
            title=_quoted(self.title),
            seed=_quoted(self.seed),
            script=SCRIPT,
            requirements=_requirements(self.requirements),
            names=names,
            description=_text(self.description.strip()),
            objectives="\n".join(_objective(o, seed.get(o.name)) for o in objectives),
            rule=_quoted(" and ".join(rules)),
            noise=_NOISE.format(names=", ".join(sorted(noise))) if noise else "",
            wall_s=float(self.wall_s),
            memory_bytes=self.memory_bytes,
        )


def rewards_of(draft: Draft, given: Sequence[str], measured: Mapping[str, float]) -> list[Objective]:
    """Return the rewards of the problem: first those that the user named, then constraints, then records.

    Args:
        draft: Imported directory.
        given: ``name:max`` or ``name:min``; if empty, maximize ``combined_score``.
        measured: Metrics of the initial program, by name.

    Raises:
        InvalidInputError: A reward has no direction, is unknown or is named twice, or no reward is named.
    """
    if not measured:
        raise InvalidInputError(
            f"the evaluation of {draft.seed} gave no finite number.", remedy="Begin with a program that can be scored."
        )
    there = ", ".join(sorted(measured))
    if not given and _SCORE not in measured:
        raise InvalidInputError(
            f"{draft.slug!r} has no metric with a known direction; the initial program has {there}.",
            remedy=f"Pass --reward {min(measured)}:max (or :min) once per reward.",
        )
    chosen: dict[str, Direction] = {}
    for pair in given or [f"{_SCORE}:max"]:
        name, _, word = pair.rpartition(":")
        if word not in _DIRECTIONS:
            raise _wrong(f"is {pair!r}: expected name:max or name:min")
        if name not in measured:
            raise _wrong(f"is {pair!r}: the initial program has {there}")
        if name in chosen:
            raise _wrong(f"names {name!r} twice")
        chosen[name] = _DIRECTIONS[word]
    named = [Objective(name=name, direction=way, range=_scale(measured[name])) for name, way in chosen.items()]
    rest = [name for name in measured if name not in chosen]
    bound = [
        Objective(name=name, role=ObjectiveRole.CONSTRAINT, limit=1.0) for name in draft.constraints if name in rest
    ]
    records = [
        Objective(name=name, role=ObjectiveRole.RECORD, range=_scale(measured[name]))
        for name in rest
        if name not in draft.constraints
    ]
    return [*named, *bound, *records]


def noise_of(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the spread of every metric that differs between evaluations of one program, by name."""
    names = dict.fromkeys(name for found in measured for name in found)
    values = {name: [found[name] for found in measured if name in found] for name in names}
    spread = {name: max(each) - min(each) for name, each in values.items()}
    return {name: width for name, width in spread.items() if width > 0}


def measured_in(artifacts: Mapping[str, str]) -> dict[str, float]:
    """Return the finite metrics in the note of a trial's evaluation."""
    found: dict[str, float] = {}
    for name, value in _NUMBER_NOTE.findall(artifacts.get("other metrics", "")):
        with contextlib.suppress(ValueError):  # an evaluator can write any text
            found[name] = float(value)
    return {name: value for name, value in found.items() if math.isfinite(value)}


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
        for path in paths:
            path.write_text(texts[path.name], encoding="utf-8")
    except OSError as error:
        raise ConflictError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    return paths


def _contained(name: str) -> str:
    return (_CONTAINED / f"{name}.py").read_text(encoding="utf-8")


def _scale(value: float) -> tuple[float, float]:
    """Return an initial range: from 0 to 1 if it contains the value, else to about twice the value."""
    if 0 <= value <= 1:
        return 0.0, 1.0
    most = min(float(f"{2 * abs(value):.2g}"), sys.float_info.max)
    return (0.0, most) if value > 0 else (-most, 0.0)


def _objective(objective: Objective, value: float | None) -> str:
    lines = ["[[objectives]]", f'name = "{objective.name}"', f'direction = "{objective.direction.value}"']
    if objective.role is not ObjectiveRole.OBJECTIVE:
        lines.append(f'role = "{objective.role.value}"')
    if objective.role is ObjectiveRole.CONSTRAINT:
        lines.append(f"limit = {objective.limit}")
    measured = "" if value is None else f"  # the initial program has {value:.6g}"
    return "\n".join([*lines, f"range = [{objective.range[0]!r}, {objective.range[1]!r}]{measured}", ""])


def _requirements(packages: Sequence[str]) -> str:
    if not packages:
        return ""
    lines = "\n".join(f"  {_quoted(package)}," for package in packages)
    return f"requirements = [                       # instead of the packages of the worker\n{lines}\n]\n"


def _wrong(message: str) -> InvalidInputError:
    field_error = FieldError(message, where="--reward")
    return InvalidInputError(f"The option is not valid: {field_error}.", field_errors=(field_error,))


def _quoted(text: str) -> str:
    """Return a text as a TOML string, which has the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(text: str) -> str:
    """Return a text of several lines as a TOML string."""
    lines = [_quoted(line)[1:-1].replace('\\"', '"') for line in text.split("\n")]
    return '"""\n' + "\n".join(lines).replace('"""', '""\\"') + '\n"""'


_NOISE_MARGIN: Final = 2.0
_NOISE: Final = """\
stochastic = true                      # evaluations of the initial program differ in {names}
confirmations = 3                      # a target counts after as many further evaluations

"""
_PROBLEM: Final = """\
# Made by 'speciate problems import'. Review it, then run: speciate problems check DIR, speciate problems add DIR

slug = "{slug}"
title = {title}
kind = "in_process"                    # the evaluator imports the candidate, so candidates can forge rewards
seed = {seed}
evaluator = "{script}"     # calls the imported evaluator, which is unchanged
{requirements}data_files = [                         # files in the working folder of candidates and evaluator
{names}
]

{noise}# The task as the policy reads it.
description = {description}

# direction: "maximize" or "minimize"; role "record": stored, never selected on; range: estimated scale of comparisons.
{objectives}
# Define success here. The default target is any candidate better than the initial program.
[[targets]]
name = "better_than_initial"
rule = {rule}
unlock = true

[limits]                               # for one evaluation
wall_s = {wall_s}
cpu_s = {wall_s}
memory_bytes = {memory_bytes}
"""
