"""Request bodies of Google's AlphaEvolve API, as far as this service reads them, and what they mean here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from speciate.domain.errors import InvalidInputError
from speciate.domain.files import text_of
from speciate.domain.language import Language
from speciate.domain.problem import Problem, ProblemKind
from speciate.problems.template import slug_of_text

_NOT_A_NAME: Final = re.compile(r"\W+")
_SENTINEL: Final = 1e9
"""Scores of this size and beyond tell a failure."""

Count = Annotated[int, Field(ge=0, le=10**6)]


class _Part(BaseModel):
    """A part of a body. Further keys are free, and null counts as missing."""

    model_config = ConfigDict(alias_generator=to_camel)


class _Model(_Part):
    name: str | None = None
    weight: Annotated[float, Field(ge=0, le=1e6)] | None = None


class _Generation(_Part):
    context: str | None = None
    models: list[_Model] | None = None


class _Run(_Part):
    max_programs: Count | None = None
    concurrency: Count | None = None
    max_duration: str | None = None


class _Config(_Part):
    title: str | None = None
    problem_description: str | None = None
    program_language: str | None = None
    run_settings: _Run | None = None
    generation_settings: _Generation | None = None


class _File(_Part):
    path: str | None = None
    content: str | None = None


class _Content(_Part):
    files: list[_File] | None = None


class _Score(_Part):
    metric: str | None = None
    score: float | None = None


class _Scores(_Part):
    scores: list[_Score] | None = None


class _Insight(_Part):
    label: str | None = None
    text: str | None = None


class _Insights(_Part):
    insights: list[_Insight] | None = None


class _Evaluation(_Part):
    scores: _Scores | None = None
    insights: _Insights | None = None


class _Submission(_Part):
    lock_token: str | None = None
    program: str | None = None
    evaluation: _Evaluation | None = None


class _Body(_Part):
    config: _Config | None = None
    content: _Content | None = None
    evaluation: _Evaluation | None = None
    desired_programs_count: Count | None = None
    evaluation_submissions: list[_Submission] | None = None


def require_shape(body: Any) -> None:
    """Check the types of the values in a body with keys in camelCase.

    Raises:
        pydantic.ValidationError: One differs.
    """
    _Body.model_validate(body)


def problem_of(config: Mapping[str, Any], initial: Mapping[str, Any]) -> Problem:
    """Return the problem that an experiment's configuration and initial program describe.

    Every metric of the initial program's evaluation is maximized, as in that API. Its range is wide around the initial
    score, since none is declared.
    """
    files, scores = program_files(initial), scores_in(initial.get("evaluation") or {})
    if not scores:
        raise InvalidInputError("the initial program's evaluation has no scores: expected one per metric.")
    title, language = str(config["title"]).strip(), str(config["programLanguage"]).strip()
    context = (config.get("generationSettings") or {}).get("context") or ""
    python = language.lower().startswith("python")
    path = next(iter(files))
    return Problem.model_validate(
        {
            "slug": slug_of_text(title, "experiment"),
            "title": " ".join(title.split())[:200],
            "description": "\n\n".join(filter(None, (str(config["problemDescription"]), str(context))))[:100_000],
            "source": "AlphaEvolve experiment",
            "kind": ProblemKind.EVALUATOR,
            "evaluation": "external",
            "objectives": [
                {"name": identifier(metric), "range": _range(score), "description": metric[:200]}
                for metric, score in scores.items()
            ],
            "targets": [_target(scores)],
            "weights": {identifier(metric): 1.0 for metric in scores},
            "confirmations": 0,
            "seed_program": text_of(files) if len(files) > 1 else files[path],
            "many_files": len(files) > 1,
            # Nothing runs it here: for programs that are not one Python file, it tells prompts and workers the form.
            "language": None if python and len(files) == 1 else Language(name=language[:40], file=path, run=(path,)),
        }
    )


def _range(score: float) -> tuple[float, float]:
    """Return a range around a score in which differences of a trillionth of it count; failures are no scores."""
    plain = abs(score) if _plausible(score) else 1.0
    wide = 10.0 ** (4 + math.ceil(math.log10(max(plain, 1.0))))
    return -wide, wide


def _target(scores: Mapping[str, float]) -> dict[str, Any]:
    """Return the target: better than the initial scores, or the ends of the ranges if these tell a failure."""
    plausible = all(_plausible(score) for score in scores.values())
    above = {m: f"> {score:.17g}" if plausible else f">= {_range(score)[1]:.17g}" for m, score in scores.items()}
    rule = " and ".join(f"{identifier(metric)} {bound}" for metric, bound in above.items())
    return {"name": "better_than_initial" if plausible else "end_of_range", "rule": rule, "unlock": True}


def _plausible(score: float) -> bool:
    return math.isfinite(score) and abs(score) < _SENTINEL


def program_files(program: Mapping[str, Any]) -> dict[str, str]:
    entries = (program.get("content") or {}).get("files") or []
    files = {str(one.get("path") or "program.py"): str(one.get("content") or "") for one in entries}
    if not any(text.strip() for text in files.values()):
        raise InvalidInputError("content.files holds no program: expected at least one file with path and content.")
    return files


def scores_in(evaluation: Mapping[str, Any]) -> dict[str, float]:
    scores = (evaluation.get("scores") or {}).get("scores") or []
    return {str(one.get("metric") or ""): float("nan" if one.get("score") is None else one["score"]) for one in scores}


def identifier(name: str) -> str:
    clean = _NOT_A_NAME.sub("_", name).strip("_")[:60] or "score"
    return clean if clean[0].isalpha() else f"m_{clean}"


def submission(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a submission as the routes for external evaluators take it."""
    evaluation_id, _, lease = str(request.get("lockToken") or "").partition(".")
    evaluation = request.get("evaluation") or {}
    scores = {identifier(metric): score for metric, score in scores_in(evaluation).items()}
    feedback = {
        identifier(str(one.get("label") or "insight")): str(one.get("text") or "")[: 64 << 10]
        for one in ((evaluation.get("insights") or {}).get("insights") or [])[:16]
    }
    result: dict[str, Any] = {"id": evaluation_id, "lease": lease, "feedback": feedback}
    if scores and all(math.isfinite(score) for score in scores.values()):
        return result | {"rewards": scores}
    detail = "; ".join(feedback.values())[:4000] or "the evaluator returned no score"
    return result | {"failure": {"kind": "invalid_output", "reason": "no_score", "detail": detail}}
