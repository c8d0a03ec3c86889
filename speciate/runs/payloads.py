"""Payloads of work units as JSON values. They hold the programs between proposal and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from speciate.domain.candidate import Failure, FailureKind, Proposal
from speciate.domain.policy import PolicyRole


def evaluate_payload(
    first: int, proposals: Sequence[Proposal], more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the payload of an ``evaluate`` unit; ``first`` is the number of its first candidate.

    ``more`` are the groups of its completions in a run that learns.
    """
    return {"first": first, "proposals": [_proposal_json(proposal) for proposal in proposals], **(more or {})}


def read_proposals(payload: Mapping[str, Any]) -> list[Proposal]:
    """Return the proposals of an ``evaluate`` unit."""
    return [_read_proposal(item) for item in payload["proposals"]]


DueConfirmation = tuple[int, tuple[int, ...]]
"""Number of a candidate to evaluate again, and the positions of the targets that the repeats decide."""


def confirm_payload(due: Sequence[DueConfirmation], *, opens: bool, ends: bool) -> dict[str, Any]:
    """Return the payload of a ``confirm`` unit.

    Args:
        due: Its confirmation, and those that follow in the same lane.
        opens: True if the lanes of the run start after the last confirmation.
        ends: True if the run ends after the last confirmation.
    """
    first, *then = ({"number": number, "targets": list(targets)} for number, targets in due)
    return {**first, "then": then, "opens": opens, "ends": ends}


def read_confirmations(payload: Mapping[str, Any]) -> list[DueConfirmation]:
    """Return the confirmation of a ``confirm`` unit, and those that follow in its lane.

    Units that version 0.1.0 stored have an item for each target; those of one candidate are joined.
    """
    due: dict[int, list[int]] = {}
    for item in (payload, *payload.get("then", ())):
        due.setdefault(int(item["number"]), []).extend(item.get("targets") or [item["target"]])
    return [(number, tuple(targets)) for number, targets in due.items()]


def _proposal_json(proposal: Proposal) -> dict[str, Any]:
    failure = proposal.failure
    return {
        "program": proposal.program,
        "hash": proposal.program_hash,
        "role": proposal.role.value,
        "island": proposal.island,
        "parents": list(proposal.parents),
        "inspirations": list(proposal.inspirations),
        "rollout": proposal.rollout,
        "answer": proposal.answer,
        "failure": None if failure is None else [failure.kind.value, failure.reason, failure.detail],
        "policy": proposal.policy,
        **({} if proposal.version is None else {"version": proposal.version}),
        **({} if proposal.advice is None else {"advice": proposal.advice}),
        **({} if proposal.origin is None else {"origin": proposal.origin}),
        **({} if proposal.proposed_by is None else {"proposed_by": proposal.proposed_by}),
        **({} if proposal.shape is None else {"shape": proposal.shape}),
    }


def _read_proposal(item: Mapping[str, Any]) -> Proposal:
    failure = item["failure"]
    return Proposal(
        program=item["program"],
        program_hash=item["hash"],
        role=PolicyRole(item["role"]),
        island=item["island"],
        parents=tuple(item["parents"]),
        inspirations=tuple(item["inspirations"]),
        rollout=item["rollout"],
        answer=item["answer"],
        failure=None if failure is None else Failure(FailureKind(failure[0]), failure[1], failure[2]),
        policy=item.get("policy", 0),
        version=item.get("version"),
        advice=item.get("advice"),
        origin=item.get("origin"),
        proposed_by=item.get("proposed_by"),
        shape=item.get("shape"),
    )
