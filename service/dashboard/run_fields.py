"""The part of a run's form that says how it goes about its search: who is asked, which programs are new, advice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from service.dashboard.fields import Field, build_fields, number_or_text, read_values
from speciate.domain.ensemble import PolicyChoice
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.guidance import Guidance
from speciate.domain.novelty import Novelty
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunSpec
from speciate.domain.values import storable
from speciate.ports.records.runs import RunRecord

_NOVELTY: Final = "novelty."
_GUIDANCE: Final = "guidance."
_EVERY: Final = f"{_GUIDANCE}every"
_NOTES: Final = {
    "novelty.same": "when two programs are the same one; empty leaves it to the problem",
    "novelty.near": "similarity to an earlier program from which one is not evaluated; empty rejects none.",
    "novelty.shingle": "tokens in a shingle, of which that similarity counts the common ones.",
    "novelty.window": "latest candidates that a new one is compared with.",
    "guidance.every": "batches from one piece of advice that the run writes to the next; empty: no advice.",
    "guidance.most": "pieces of advice that are kept at once.",
}


def parse_policies(text: str, where: str) -> str | dict[str, Any]:
    """Return the policy that a text names, or several as in ``small=3, big`` with their weights.

    Raises:
        InvalidInputError: One is named twice.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) == 1 and "=" not in entries[0]:
        return entries[0]
    weights: dict[str, Any] = {}
    for name, equals, weight in (entry.partition("=") for entry in entries):
        weights[name.strip()] = number_or_text("number", weight.strip()) if equals else 1.0
    if len(weights) < len(entries):
        flaw = FieldError("names a policy twice: expected every policy once", where=where)
        raise InvalidInputError(f"The {where} is not valid: {flaw}", flaws=(flaw,))
    return weights


def search_fields(values: Mapping[str, str]) -> list[Field]:
    """Return the fields, filled in as the form was."""
    defaults = RunSpec.model_fields
    choice = Field(
        "policy_choice",
        "policy choice",
        "choice",
        values.get("policy_choice", str(defaults["policy_choice"].default)),
        "how one of several policies is chosen: as often as its weight says, or by what it earns (ucb)",
        choices=tuple(PolicyChoice),
    )
    discount = Field(
        "policy_discount",
        "policy discount",
        "number",
        values.get("policy_discount", str(defaults["policy_discount"].default)),
        "what a batch leaves of the weight of older answers, for ucb.",
        0,
        1,
    )
    found = [*build_fields(Novelty, _NOVELTY, values), *build_fields(Guidance, _GUIDANCE, {_EVERY: "", **values})]
    return [choice, discount, *(replace(f, label=f.name.replace(".", " "), note=_NOTES[f.name]) for f in found)]


def read_search(values: Mapping[str, str]) -> dict[str, Any]:
    """Return what the fields hold, as a ``RunSpec`` takes it; what cannot be read stays text, and is refused later."""
    choice, discount = (values.get(name, "").strip() for name in ("policy_choice", "policy_discount"))
    return {
        "novelty": read_values(Novelty, _NOVELTY, values),
        "guidance": read_values(Guidance, _GUIDANCE, values) if values.get(_EVERY, "").strip() else None,
        **({"policy_choice": choice} if choice else {}),
        **({"policy_discount": number_or_text("number", discount)} if discount else {}),
    }


def search_from_run(run: RunRecord) -> dict[str, str]:
    """Return what the fields, and those of policy and mutator, hold for a run like another one."""
    spec = run.spec
    values: dict[str, Any] = {
        "policy": _named(run, PolicyRole.PROPOSE) or f"{run.policy}@{run.policy_version}",
        "mutator": _named(run, PolicyRole.MUTATE) or (f"{run.mutator}@{run.mutator_version}" if run.mutator else ""),
        "policy_choice": spec.policy_choice,
        "policy_discount": spec.policy_discount,
        **{_NOVELTY + name: value for name, value in spec.novelty},
        **{_GUIDANCE + name: value for name, value in spec.guidance or ()},
    }
    return {name: "" if value is None else str(value) for name, value in values.items()}


def _named(run: RunRecord, role: PolicyRole) -> str:
    members = [member for member in run.ensembles if member.role is role]
    return ", ".join(f"{m.policy}@{m.policy_version}={str(m.weight).removesuffix('.0')}" for m in members)


def parse_tags(text: str) -> list[str]:
    """Return the tags that a text names, with blanks or commas between them."""
    return [tag for tag in re.split(r"[\s,]+", storable(text)) if tag]


def read_labels(values: Mapping[str, str]) -> dict[str, Any]:
    """Return what the fields hold, as ``Labels`` or ``Relabelling`` take it; a field that is not there is left out."""
    found: dict[str, Any] = {name: values[name] for name in ("name", "note") if name in values}
    return {**found, "tags": parse_tags(values["tags"])} if "tags" in values else found


def labels_from_run(run: RunRecord) -> dict[str, str]:
    """Return what the fields hold for a run as it is."""
    return {"name": run.name, "tags": " ".join(run.tags), "note": run.note}
