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
    """A directory of another system, read and not run.

    Attributes:
        slug: Name of the problem.
        title: One line.
        seed: Name of the initial program among the files.
        files: Texts of what the evaluator finds beside it, itself and the initial program included, by name.
        adapter: Which script in ``contained`` calls the evaluator.
        options: Options of that script.
        description: Description for the policy.
        wall_s: Seconds for one evaluation.
        memory_bytes: Address space for one evaluation.
        constraints: Names of metrics that must be 1.
        remarks: What the user should know.
        left_out: Why files of the directory are not in the problem, by name.
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
    constraints: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    def trial(self) -> Problem:
        """Return the problem whose evaluation of the initial program tells which metrics there are.

        Raises:
            InvalidInputError: The initial program or another file cannot be part of a problem.
        """
        return self._problem(self.texts((_PROBE,), {}))

    def written(self, objectives: Sequence[Objective], seed: Mapping[str, float]) -> dict[str, str]:
        """Return the files of the problem by name.

        Args:
            objectives: Its rewards; the first one is what the unlock target is about.
            seed: What the initial program has, by name.

        Raises:
            InvalidInputError: They make no problem.
        """
        texts = self.texts(objectives, seed)
        self._problem(texts)
        return texts

    def texts(self, objectives: Sequence[Objective], seed: Mapping[str, float]) -> dict[str, str]:
        """Return the files as ``written`` does, without looking whether they make a problem."""
        worst = {o.name: o.range[0 if o.direction is Direction.MAXIMIZE else 1] for o in objectives}
        script = _contained("evaluate")
        for name, values in (("WORST: dict[str, float]", worst), ("OPTIONS: dict[str, Any]", dict(self.options))):
            script = script.replace(f"{name} = {{}}", f"{name} = {values!r}")
        ours = {FILE_NAME: self._definition(objectives, seed), SCRIPT: script, ADAPTER: _contained(self.adapter)}
        return ours | dict(self.files)

    def _problem(self, texts: Mapping[str, str]) -> Problem:
        return parse_problem(texts[FILE_NAME], texts)

    def _definition(self, objectives: Sequence[Objective], seed: Mapping[str, float]) -> str:
        first, bound = objectives[0], [o.name for o in objectives if o.role is ObjectiveRole.CONSTRAINT]
        sign = ">" if first.direction is Direction.MAXIMIZE else "<"
        rules = [f"{first.name} {sign} {seed.get(first.name, 0.0)!r}", *(f"{name} >= 1" for name in bound)]
        names = "\n".join(f"  {_quoted(name)}," for name in (*self.files, ADAPTER))
        return _PROBLEM.format(
            slug=self.slug,
            title=_quoted(self.title),
            seed=_quoted(self.seed),
            script=SCRIPT,
            names=names,
            description=_text(self.description.strip()),
            objectives="\n".join(_objective(o, seed.get(o.name)) for o in objectives),
            rule=_quoted(" and ".join(rules)),
            wall_s=float(self.wall_s),
            memory_bytes=self.memory_bytes,
        )


def rewards_of(draft: Draft, given: Sequence[str], measured: Mapping[str, float]) -> list[Objective]:
    """Return the rewards of the problem: those that the user named, then constraints, then records.

    Args:
        draft: What was read.
        given: ``name:max`` or ``name:min``; if there is none, ``combined_score`` is to be maximised.
        measured: What the initial program has, by name.

    Raises:
        InvalidInputError: A reward has no direction, is unknown or is named twice, or none is named.
    """
    if not measured:
        raise InvalidInputError(
            f"the evaluation of {draft.seed} gave no finite number.", remedy="Begin with a program that can be scored."
        )
    there = ", ".join(sorted(measured))
    if not given and _SCORE not in measured:
        raise InvalidInputError(
            f"no metric of {draft.slug!r} says which way is better; the initial program has {there}.",
            remedy=f"Say it: --reward {min(measured)}:max (or :min), once for each.",
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


def measured_in(artifacts: Mapping[str, str]) -> dict[str, float]:
    """Return the metrics that the evaluation of a trial left as a note; what is not finite cannot be a reward."""
    found: dict[str, float] = {}
    for name, value in _NUMBER_NOTE.findall(artifacts.get("other metrics", "")):
        with contextlib.suppress(ValueError):  # an evaluator can write anything
            found[name] = float(value)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def write(texts: Mapping[str, str], folder: Path) -> list[Path]:
    """Write the files of a problem into a directory, which must not be there or be empty, and return them.

    Raises:
        ConflictError: There is something, or it cannot be written.
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
    """Return a range to begin with: from 0 to 1 where the value is there, else to about twice the value."""
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


def _wrong(message: str) -> InvalidInputError:
    field_error = FieldError(message, where="--reward")
    return InvalidInputError(f"The option is not valid: {field_error}.", field_errors=(field_error,))


def _quoted(text: str) -> str:
    """Return a text as a string of TOML, which has the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(text: str) -> str:
    """Return a text of many lines as a string of TOML."""
    lines = [_quoted(line)[1:-1].replace('\\"', '"') for line in text.split("\n")]
    return '"""\n' + "\n".join(lines).replace('"""', '""\\"') + '\n"""'


_PROBLEM: Final = """\
# Made by 'speciate problems import'. Look through it, then: speciate problems check DIR, speciate problems add DIR

slug = "{slug}"
title = {title}
kind = "in_process"                    # the evaluator imports the candidate, which could forge its rewards
seed = {seed}
evaluator = "{script}"     # calls the imported evaluator, which is as it was
data_files = [                         # what candidates and evaluator find in the folder they run in
{names}
]

# The task as the policy reads it.
description = {description}

# "maximize" or "minimize"; role "record": written down, never selected on; range: a guess at the scale of comparisons.
{objectives}
# Say what would be a success. Until then it is whatever is better than the initial program.
[[targets]]
name = "better_than_initial"
rule = {rule}
unlock = true

[limits]                               # for one evaluation
wall_s = {wall_s}
cpu_s = {wall_s}
memory_bytes = {memory_bytes}
"""
