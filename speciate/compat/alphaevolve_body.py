"""Shape of the request bodies of Google's AlphaEvolve API, as far as this service reads them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

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
