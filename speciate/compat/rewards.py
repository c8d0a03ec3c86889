"""Rewards of an imported problem: what the user names, else the rule of the other system."""

import contextlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import stdev
from typing import Final

from speciate.compat.draft import MEAN, Draft, Objectives
from speciate.domain.errors import InvalidInputError
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.rule import NUMBER
from speciate.domain.values import identifier_of

Directions = Mapping[str, Direction]

RATED: Final = "rated metrics"
"""Label of a trial's note that names the metrics whose mean counts."""

SCORE: Final = "combined_score"
_NUMBER_NOTE: Final = re.compile(r"(?m)^([A-Za-z_]\w{0,79}) = (-?\d\S*)$", re.ASCII)


def rewards_of(
    draft: Draft, given: Directions, measured: Mapping[str, float], rules: Sequence[str] = ()
) -> list[Objective]:
    """Return the rewards of the problem: first those with a direction, then constraints, then records.

    If no direction is given, the other system's rule applies to the metrics of the initial program, ``measured``.
    Limits in ``rules``, those of targets, extend the ranges.
    """
    if not measured:
        raise InvalidInputError(
            f"the evaluation of {draft.seed} gave no finite number.", remedy="Begin with a program that can be scored."
        )
    if unknown := next((name for name in given if name not in measured), None):
        raise InvalidInputError(
            f"cannot {given[unknown].value} {unknown}: the evaluator returned no number {unknown!r}.",
            remedy=f"It returned {_listed(measured)}.",
        )
    directions = given or dict.fromkeys(_undeclared(draft, measured), Direction.MAXIMIZE)
    weighted = MEAN in measured and not given  # by the widths of their ranges
    named = [
        Objective(name=name, direction=way, range=_scale(name, measured[name], rules), estimated=not weighted)
        for name, way in directions.items()
    ]
    rest = [name for name in measured if name not in directions and not (given and name == MEAN)]
    bound = [
        Objective(name=name, role=ObjectiveRole.CONSTRAINT, limit=1.0) for name in draft.constraints if name in rest
    ]
    records = [
        Objective(name=name, role=ObjectiveRole.RECORD, range=_scale(name, measured[name]), estimated=True)
        for name in rest
        if name not in draft.constraints
    ]
    return [*named, *bound, *records]


def directions_of(maximize: Sequence[str], minimize: Sequence[str]) -> Directions:
    given = [(name, Direction.MAXIMIZE) for name in maximize] + [(name, Direction.MINIMIZE) for name in minimize]
    names = [name for name, _ in given]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        twice = "both maximized and minimized" if {repeated} <= {*maximize} & {*minimize} else "named twice"
        raise InvalidInputError(f"{repeated!r} is {twice}.", remedy="Give each name one direction.")
    return dict(given)


def _undeclared(draft: Draft, measured: Mapping[str, float]) -> list[str]:
    everything = [name for name in measured if name not in (MEAN, *draft.constraints)]
    if SCORE in measured and draft.undeclared is not Objectives.ALL:
        return [SCORE]
    if draft.undeclared is Objectives.SCORE and len(everything) > 1:
        raise InvalidInputError(
            f"which numbers should search improve? The evaluator returned {_listed(measured)}, and no {SCORE}.",
            remedy=f"Name each, such as --maximize {min(everything)}; in Python maximize={min(everything)!r}.",
        )
    return list((draft.rated if draft.undeclared is Objectives.MEAN else ()) or everything)


def _listed(measured: Mapping[str, float]) -> str:
    return ", ".join(sorted(measured))


def after_trial(draft: Draft, artifacts: Mapping[str, str]) -> Draft:
    """Return the directory with what a trial's evaluation reports about its metrics."""
    names = artifacts.get(RATED, "").split(", ")
    return replace(draft, rated=tuple(identifier_of(name) for name in names if name))


def noise_of(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the standard deviation of every metric that differs between evaluations of one program, by name."""
    names = dict.fromkeys(name for trial in measured for name in trial)
    values = {name: [trial[name] for trial in measured if name in trial] for name in names}
    return {name: stdev(each) for name, each in values.items() if len({*each}) > 1}


def measured_in(artifacts: Mapping[str, str]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for name, value in _NUMBER_NOTE.findall(artifacts.get("other metrics", "")):
        with contextlib.suppress(ValueError):  # an evaluator can write any text
            metrics[name] = float(value)
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _scale(name: str, value: float, rules: Sequence[str] = ()) -> tuple[float, float]:
    """Return an estimated range: from 0 to about twice the value or a rule's limit, so that ratios count alike.

    It has the width 1, on the value's side of 0, if all of them are 0 or nearly.
    """
    limits = (float(limit) for rule in rules for limit in re.findall(rf"\b{name}\s*[<>=!]=?\s*({NUMBER})", rule))
    values = [0.0, value, *limits]
    most = sys.float_info.max / 2  # the width is finite, too
    low, high = (max(-most, min(float(f"{2 * end:.2g}"), most)) for end in (min(values), max(values)))
    return (low, high) if high - low > 1e-50 else (-1.0, 0.0) if value < 0 else (0.0, 1.0)
