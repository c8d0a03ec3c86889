"""Form fields of runs and campaigns that train their policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from service.dashboard.fields import Field, build_fields, read_values
from speciate.domain.learning import MIN_GROUP, Learning

_PREFIX: Final = "learning."
_ESTIMATOR: Final = f"{_PREFIX}estimator"
_NOTES: Final = {
    _ESTIMATOR: f"Train the policy on its own completions, at least {MIN_GROUP} per prompt. Empty: it stays as it is.",
    "learning.groups": "Groups of a step; a group is all completions of one prompt.",
    "learning.kappa": "Answers whose best counts, for max_at_k, vector_max_at_k and pkpo. Empty: half the group.",
    "learning.draws": "Random weightings of the vector estimators.",
    "learning.learning_rate": "Of AdamW, constant.",
    "learning.kl": "Weight of the KL divergence from the policy at the beginning.",
    "learning.lora_rank": "Rank of an adapter; 0 trains all weights.",
    "learning.steps": "Most steps.",
    "learning.staleness": "Steps by which a completion may be older than the version that learns from it.",
}


def learning_fields(values: Mapping[str, str]) -> list[Field]:
    """Return the fields with the form's values."""
    estimator, *others = build_fields(Learning, _PREFIX, {_ESTIMATOR: "", **values})
    fields = [replace(estimator, default="", choices=("", *estimator.choices)), *others]
    return [replace(f, note=_NOTES[f.name]) for f in fields]


def read_learning(values: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the form's ``Learning`` as JSON values, without its defaults; None if no estimator is chosen."""
    return read_values(Learning, _PREFIX, values) if values.get(_ESTIMATOR, "").strip() else None


def learning_values(learning: Learning | None) -> dict[str, Any]:
    """Return the form values that repeat the options of a run."""
    return (
        {} if learning is None else {_PREFIX + name: value for name, value in learning.model_dump(mode="json").items()}
    )
