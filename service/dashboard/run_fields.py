"""Form fields of a run: policies, novelty, guidance, learning and labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from service.dashboard.fields import Field, build_fields, parse_number, read_values
from service.dashboard.learning_fields import learning_values, read_learning
from speciate.domain.ensemble import PolicyChoice
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.guidance import Guidance
from speciate.domain.novelty import Novelty
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunSpec
from speciate.domain.values import storable
from speciate.schema.runs import RunRecord

_NOVELTY: Final = "novelty."
_GUIDANCE: Final = "guidance."
_OPENED: Final = "opened_"
_EVERY: Final = f"{_GUIDANCE}every"
_CHOICE: Final = "policy_choice"
_DISCOUNT: Final = "policy_discount"
_NOTES: Final = {
    _CHOICE: "How the run chooses among several policies: by weight, or by success (ucb).",
    _DISCOUNT: "Factor by which each batch reduces the weight of older answers, for ucb.",
    "novelty.same": "When two programs count as the same. Empty: as the problem declares.",
    "novelty.near": "Similarity from which a near-duplicate is rejected without evaluation. Empty: never.",
    "novelty.shingle": "Tokens per shingle of the similarity measure.",
    "novelty.window": "Latest candidates that a new one is compared with.",
    "guidance.every": "Batches between two pieces of advice. Empty: no advice.",
    "guidance.most": "Pieces of advice kept at once.",
}


def parse_policies(text: str, where: str) -> str | dict[str, Any]:
    """Return a policy name, or for several, as in ``small=3, big``, their weights.

    Raises:
        InvalidInputError: A policy is named twice.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) == 1 and "=" not in entries[0]:
        return entries[0]
    weights: dict[str, Any] = {}
    for name, equals, weight in (entry.partition("=") for entry in entries):
        weights[name.strip()] = parse_number("number", weight.strip()) if equals else 1.0
    if len(weights) < len(entries):
        detail = FieldError("names a policy twice: expected each policy once", where=where)
        raise InvalidInputError(f"The {where} is not valid: {detail}", field_errors=(detail,))
    return weights


def search_fields(values: Mapping[str, str]) -> list[Field]:
    """Return the fields for policy choice, novelty and guidance with the form's values."""
    defaults = {name: str(RunSpec.model_fields[name].default) for name in (_CHOICE, _DISCOUNT)}
    choice, discount = ((values.get(name, default), default) for name, default in defaults.items())
    every, *others = build_fields(Guidance, _GUIDANCE, {_EVERY: "", **values})
    fields = [
        Field(_CHOICE, "", "choice", *choice, choices=tuple(PolicyChoice)),
        Field(_DISCOUNT, "", "number", *discount, low=0, high=1),
        *build_fields(Novelty, _NOVELTY, values),
        replace(every, default=""),  # without advice unless given
        *others,
    ]
    return [replace(f, label=re.sub(r"[._]", " ", f.name), note=_NOTES[f.name]) for f in fields]


def read_search(values: Mapping[str, str]) -> dict[str, Any]:
    """Return policy choice, novelty, guidance and learning as ``RunSpec`` fields; validation reports malformed ones."""
    choice, discount = (values.get(name, "").strip() for name in (_CHOICE, _DISCOUNT))
    return {
        "novelty": read_values(Novelty, _NOVELTY, values),
        "guidance": read_values(Guidance, _GUIDANCE, values) if values.get(_EVERY, "").strip() else None,
        "learning": read_learning(values),
        **({_CHOICE: choice} if choice else {}),
        **({_DISCOUNT: parse_number("number", discount)} if discount else {}),
    }


def search_from_run(run: RunRecord) -> dict[str, str]:
    """Return the form values that repeat a run's policies, novelty, guidance and learning."""
    spec = run.spec
    values: dict[str, Any] = {
        "policy": _ensemble(run, PolicyRole.PROPOSE) or f"{run.policy}@{run.policy_version}",
        "mutator": _ensemble(run, PolicyRole.MUTATE) or (f"{run.mutator}@{run.mutator_version}" if run.mutator else ""),
        _CHOICE: spec.policy_choice,
        _DISCOUNT: spec.policy_discount,
        **{_NOVELTY + name: value for name, value in spec.novelty},
        **{_GUIDANCE + name: value for name, value in spec.guidance or ()},
        **learning_values(spec.learning),
    }
    return {name: "" if value is None else str(value) for name, value in values.items()}


def parse_tags(text: str) -> list[str]:
    """Return the tags in a text, separated by blanks or commas."""
    return [tag for tag in re.split(r"[\s,]+", storable(text)) if tag]


def read_labels(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the form's labels as fields of ``Labels`` or ``Relabelling``, without missing ones."""
    found: dict[str, Any] = {name: values[name] for name in ("name", "note") if name in values}
    return {**found, "tags": parse_tags(values["tags"])} if "tags" in values else found


def changed_labels(values: Mapping[str, str]) -> dict[str, str]:
    """Return the label fields that differ from the values with which the form was opened.

    Another person may have changed the other ones since.
    """
    return {name: value for name, value in values.items() if value != values.get(_OPENED + name)}


def labels_from_run(run: RunRecord) -> dict[str, str]:
    """Return a run's labels as form values, each also as the value with which the form is opened."""
    values = {"name": run.name, "tags": " ".join(run.tags), "note": run.note}
    return values | {_OPENED + name: value for name, value in values.items()}


def _ensemble(run: RunRecord, role: PolicyRole) -> str:
    members = [member for member in run.ensembles if member.role is role]
    return ", ".join(f"{m.policy}@{m.policy_version}={str(m.weight).removesuffix('.0')}" for m in members)
