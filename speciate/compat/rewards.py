"""Rewards of an imported problem: what the user names, else the rule of the other system."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from speciate.compat.draft import MEAN, Draft, Objectives
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.objective import Direction, Objective, ObjectiveRole

RATED: Final = "rated metrics"
"""Label of a trial's note that names the metrics whose mean counts."""

_SCORE: Final = "combined_score"
_DIRECTIONS: Final = {"max": Direction.MAXIMIZE, "min": Direction.MINIMIZE}
_NUMBER_NOTE: Final = re.compile(r"(?m)^([A-Za-z_]\w{0,79}) = (-?\d\S*)$", re.ASCII)


def rewards_of(draft: Draft, given: Sequence[str], measured: Mapping[str, float]) -> list[Objective]:
    """Return the rewards of the problem: first those with a direction, then constraints, then records.

    ``given`` has entries such as ``name:max`` and ``name:min``; if it is empty, the other system's rule applies to the
    metrics of the initial program, ``measured``.
    """
    if not measured:
        raise InvalidInputError(
            f"the evaluation of {draft.seed} gave no finite number.", remedy="Begin with a program that can be scored."
        )
    directions = _declared(given or _undeclared(draft, measured), measured)
    named = [Objective(name=name, direction=way, range=_scale(measured[name])) for name, way in directions.items()]
    rest = [name for name in measured if name not in directions and not (given and name == MEAN)]
    bound = [
        Objective(name=name, role=ObjectiveRole.CONSTRAINT, limit=1.0) for name in draft.constraints if name in rest
    ]
    records = [
        Objective(name=name, role=ObjectiveRole.RECORD, range=_scale(measured[name]))
        for name in rest
        if name not in draft.constraints
    ]
    return [*named, *bound, *records]


def _undeclared(draft: Draft, measured: Mapping[str, float]) -> list[str]:
    if _SCORE in measured and draft.undeclared is not Objectives.ALL:
        return [f"{_SCORE}:max"]
    if draft.undeclared is Objectives.SCORE:
        raise InvalidInputError(
            f"{draft.slug!r} has no metric with a known direction; the initial program has {_listed(measured)}.",
            remedy=f"Pass --reward {min(measured)}:max (or :min) once per reward.",
        )
    everything = [name for name in measured if name != MEAN]
    rated = draft.rated if draft.undeclared is Objectives.MEAN else ()
    return [f"{name}:max" for name in rated or everything]


def _declared(options: Sequence[str], measured: Mapping[str, float]) -> dict[str, Direction]:
    directions: dict[str, Direction] = {}
    for pair in options:
        name, _, direction = pair.rpartition(":")
        if direction not in _DIRECTIONS:
            raise _wrong(f"is {pair!r}: expected name:max or name:min")
        if name not in measured:
            raise _wrong(f"is {pair!r}: the initial program has {_listed(measured)}")
        if name in directions:
            raise _wrong(f"names {name!r} twice")
        directions[name] = _DIRECTIONS[direction]
    return directions


def _listed(measured: Mapping[str, float]) -> str:
    return ", ".join(sorted(measured))


def after_trial(draft: Draft, artifacts: Mapping[str, str]) -> Draft:
    """Return the directory with what a trial's evaluation reports about its metrics."""
    names = artifacts.get(RATED, "").split(", ")
    rated = tuple(re.sub(r"\W|^(?=\d)", "_", name, flags=re.ASCII) for name in names if name)
    return replace(draft, rated=rated)


def noise_of(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the spread of every metric that differs between evaluations of one program, by name."""
    names = dict.fromkeys(name for trial in measured for name in trial)
    values = {name: [trial[name] for trial in measured if name in trial] for name in names}
    spread = {name: max(each) - min(each) for name, each in values.items()}
    return {name: width for name, width in spread.items() if width > 0}


def measured_in(artifacts: Mapping[str, str]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, value in _NUMBER_NOTE.findall(artifacts.get("other metrics", "")):
        with contextlib.suppress(ValueError):  # an evaluator can write any text
            metrics[name] = float(value)
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _scale(value: float) -> tuple[float, float]:
    """Return an initial range: from 0 to 1 if it contains the value, else to about twice the value."""
    if 0 <= value <= 1:
        return 0.0, 1.0
    most = min(float(f"{2 * abs(value):.2g}"), sys.float_info.max)
    return (0.0, most) if value > 0 else (-most, 0.0)


def _wrong(message: str) -> InvalidInputError:
    field_error = FieldError(message, where="--reward")
    return InvalidInputError(f"The option is not valid: {field_error}.", field_errors=(field_error,))
