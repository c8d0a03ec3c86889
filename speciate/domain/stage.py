"""An evaluation cascade: cheap measurements first, the rest only for candidates that are worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from speciate.domain.objective import Direction, Objective
from speciate.domain.rule import Rule, parse_rule
from speciate.domain.values import Identifier, Value


class Stage(Value):
    """One stage as the author wrote it.

    Attributes:
        name: Name of the stage.
        objectives: What it measures; every objective belongs to exactly one stage.
        needs: Rule over what this and earlier stages measured; the next stage runs only if it holds. Empty means
            always.
        function: Function of the script that measures it; by default ``evaluate_NAME`` (``score_NAME`` for data).
            Kind ``cases`` has none: there a stage asks the cases that count towards its objectives.
    """

    name: Identifier
    objectives: tuple[Identifier, ...] = Field(min_length=1)
    needs: str = ""
    function: Identifier | None = None


@dataclass(frozen=True, slots=True)
class CascadeStage:
    """One stage, ready to run.

    Attributes:
        name: Name of the stage; empty where the problem declares none.
        objectives: What it measures, in declared order.
        function: Function of the script that measures it.
        needs: Whether the next stage runs, asked of a full reward vector; None means always.
    """

    name: str
    objectives: tuple[Objective, ...]
    function: str
    needs: Rule | None = None


def worst(objective: Objective) -> float:
    """Return the value of an objective that was not measured: the bad end of its declared range."""
    low, high = objective.range
    return low if objective.direction is Direction.MAXIMIZE else high


def check_stages(stages: Sequence[Stage], objectives: Sequence[Objective], *, scripted: bool) -> None:
    """Refuse stages that do not fit a problem's objectives.

    Args:
        stages: The cascade; empty is fine.
        objectives: All objectives of the problem.
        scripted: Whether an author's script measures them.

    Raises:
        ValueError: Something does not fit; the text names the stage and what was expected.
    """
    names = [objective.name for objective in objectives]
    measured: list[str] = []
    for stage in stages:
        if stage.name in {earlier.name for earlier in stages if earlier is not stage}:
            raise ValueError(f"stage {stage.name!r} is declared twice: names must differ")
        if unknown := [name for name in stage.objectives if name not in names]:
            raise ValueError(f"stage {stage.name!r} measures {unknown[0]!r}, which is not an objective")
        if again := [name for name in stage.objectives if name in measured]:
            raise ValueError(f"stage {stage.name!r} measures {again[0]!r} again: one stage measures each objective")
        measured += stage.objectives
        if stage.needs and (early := parse_rule(stage.needs, names).uses.difference(measured)):
            raise ValueError(f"stage {stage.name!r} needs {min(early)!r}, which no stage has measured by then")
        if stage.function is not None and not scripted:
            raise ValueError(f"stage {stage.name!r} names a function: kind 'cases' has none")
    if stages and (left := [name for name in names if name not in measured]):
        raise ValueError(f"stages leave out {left[0]!r}: one stage must measure each objective")
    if scripted:
        _check_ranges(stages, objectives)


def _check_ranges(stages: Sequence[Stage], objectives: Sequence[Objective]) -> None:
    later = {name for stage in stages[1:] for name in stage.objectives}
    for objective in objectives:
        if objective.name in later and "range" not in objective.model_fields_set:
            raise ValueError(
                f"objective {objective.name!r} is measured by a later stage: declare its range, whose bad end stands"
                " for it when a candidate stops before"
            )
