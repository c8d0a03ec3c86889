"""Evaluation cascades: cheap stages filter candidates for expensive ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from speciate.domain.errors import InvalidFieldError, RuleError
from speciate.domain.objective import Objective
from speciate.domain.rule import Rule, parse_rule
from speciate.domain.values import Identifier, Value


class EvaluatedBy(StrEnum):
    SANDBOX = "sandbox"
    """A sandboxed process of an evaluate worker."""
    EXTERNAL = "external"
    """A program outside the service, which leases candidates and submits rewards (ADR 38)."""


class Stage(Value):
    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"evaluation"})

    name: Identifier = Field(examples=["quick"])
    """Name of the stage."""
    objectives: tuple[Identifier, ...] = Field(min_length=1, examples=[["short"]])
    """Objectives that it measures. Exactly one stage measures each objective."""
    needs: str = Field(default="", examples=["short >= 0.5"])
    """Rule over the objectives measured so far; the next stage runs only if it holds. Empty: always."""
    function: Identifier | None = Field(default=None, examples=["measure_short_lists"])
    """Function of the evaluator that measures it. Default: `evaluate_NAME`, or `score_NAME` for kind `data`. Kind
    `cases` has none: a stage runs the cases that count towards its objectives."""
    evaluation: EvaluatedBy = Field(default=EvaluatedBy.SANDBOX, examples=["external"])
    """`sandbox`, or `external` for the last stage: programs outside the service measure it."""


@dataclass(frozen=True, slots=True)
class CascadeStage:
    name: str
    """Name of the stage; empty if the problem declares no stages."""
    objectives: tuple[Objective, ...]
    function: str
    needs: Rule | None = None
    """Rule on the full reward vector for the next stage to run; None means always."""
    external: bool = False


def check_stages(stages: Sequence[Stage], objectives: Sequence[Objective], *, scripted: bool) -> None:
    """Check declared stages against a problem's objectives; if ``scripted``, an author's script measures them."""
    names = [objective.name for objective in objectives]
    measured: list[str] = []
    stage_names = [stage.name for stage in stages]
    for i, stage in enumerate(stages):
        where = f"stages.{i}.name"
        if stage.name in stage_names[:i]:
            raise InvalidFieldError(where, f"stage {stage.name!r} is declared twice: names must differ")
        if stage.evaluation is EvaluatedBy.EXTERNAL and stage is not stages[-1]:
            raise InvalidFieldError(where, f"stage {stage.name!r} is external: only the last stage can be")
        if mistake := _mistake_in(stage, names, measured):
            raise InvalidFieldError(where, f"stage {stage.name!r} {mistake}")
        if stage.function is not None and not scripted:
            raise InvalidFieldError(where, f"stage {stage.name!r} names a function: kind 'cases' has none")
        measured += stage.objectives
    if stages and (left := [name for name in names if name not in measured]):
        raise InvalidFieldError("stages", f"no stage measures {left[0]!r}: one stage must measure each objective")
    if scripted:
        _check_ranges(stages, objectives)


def _mistake_in(stage: Stage, names: Sequence[str], measured: Sequence[str]) -> str | None:
    if unknown := [name for name in stage.objectives if name not in names]:
        return f"measures {unknown[0]!r}, which is not an objective"
    if again := [name for name in stage.objectives if name in measured]:
        return f"measures {again[0]!r} again: one stage measures each objective"
    try:
        rule = parse_rule(stage.needs, names) if stage.needs else None
    except RuleError as error:
        return f"needs {stage.needs!r}: {error}"
    if rule and (early := rule.uses.difference(measured, stage.objectives)):
        return f"needs {min(early)!r}, which no earlier stage measures"
    return None


def _check_ranges(stages: Sequence[Stage], objectives: Sequence[Objective]) -> None:
    later = {name for stage in stages[1:] for name in stage.objectives}
    for i, objective in enumerate(objectives):
        if objective.name in later and "range" not in objective.model_fields_set:
            raise InvalidFieldError(
                f"objectives.{i}.name",
                f"objective {objective.name!r} is measured by a later stage: declare its range, because its worst end"
                " replaces the value of a candidate that stops earlier",
            )
