"""Payloads of work units as JSON values. They hold the programs between proposal and evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import TypeAdapter

from speciate.domain.candidate import Proposal

_PROPOSALS: Final = TypeAdapter(list[Proposal])


def evaluate_payload(
    first: int, proposals: Sequence[Proposal], more: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the payload of an ``evaluate`` unit; ``first`` is the number of its first candidate.

    ``more`` are the groups of its completions in a run that learns.
    """
    return {
        "first": first,
        "proposals": _PROPOSALS.dump_python(list(proposals), mode="json", by_alias=True),
        **(more or {}),
    }


def read_proposals(payload: Mapping[str, Any]) -> list[Proposal]:
    return _PROPOSALS.validate_python(payload["proposals"])


DueConfirmation = tuple[int, tuple[int, ...]]
"""Number of a candidate to evaluate again, and the positions of the targets that the repeats decide."""


def confirm_payload(due: Sequence[DueConfirmation], *, opens: int, ends: bool) -> dict[str, Any]:
    """Return the payload of a ``confirm`` unit: its confirmation, and those that follow in the same lane.

    After the last of them the run ends if ``ends`` is set, and starts its first lanes if ``opens`` is their number.
    """
    first, *then = ({"number": number, "targets": list(targets)} for number, targets in due)
    return {**first, "then": then, "opens": opens, "ends": ends}


def final_payload(number: int) -> dict[str, Any]:
    """Return the payload of the ``confirm`` unit that evaluates the best candidate after the end of its run."""
    return {"number": number, "targets": [], "final": True}


def read_confirmations(payload: Mapping[str, Any]) -> list[DueConfirmation]:
    """Return the confirmation of a ``confirm`` unit, and those that follow in its lane, one for each candidate."""
    due: dict[int, list[int]] = {}
    for item in (payload, *payload.get("then", ())):
        due.setdefault(int(item["number"]), []).extend(item["targets"])
    return [(number, tuple(targets)) for number, targets in due.items()]
