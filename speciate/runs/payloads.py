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


def confirm_payload(
    number: int, target: int, *, then: Sequence[Mapping[str, Any]], opens: bool, ends: bool
) -> dict[str, Any]:
    """Return the payload of a ``confirm`` unit.

    Args:
        number: Candidate to evaluate again.
        target: Position of the target among the problem's targets.
        then: Further confirmations of the same lane, as ``{"number", "target"}``.
        opens: True if the lanes of the run start after the last confirmation.
        ends: True if the run ends after the last confirmation.
    """
    return {"number": number, "target": target, "then": [dict(item) for item in then], "opens": opens, "ends": ends}


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
