"""Tests of the lifecycle that tournaments and campaigns share."""

from __future__ import annotations

import pytest

from speciate.domain.declaration import VERBS, DeclarationKind, DeclarationState, check_transition
from speciate.domain.errors import ConflictError

_ALLOWED = {
    (DeclarationState.RUNNING, DeclarationState.PAUSED),
    (DeclarationState.RUNNING, DeclarationState.CANCELLED),
    (DeclarationState.PAUSED, DeclarationState.RUNNING),
    (DeclarationState.PAUSED, DeclarationState.CANCELLED),
}


@pytest.mark.parametrize("kind", DeclarationKind)
@pytest.mark.parametrize("source", DeclarationState)
@pytest.mark.parametrize("goal", DeclarationState)
def test_transitions(kind: DeclarationKind, source: DeclarationState, goal: DeclarationState) -> None:
    if (source, goal) in _ALLOWED:
        check_transition(kind, "d", source, goal)
    else:
        with pytest.raises(ConflictError, match=f"{kind} 'd' is {source} and cannot become {goal}"):
            check_transition(kind, "d", source, goal)


def test_refused_transition_names_the_allowed_states() -> None:
    with pytest.raises(ConflictError, match="expected cancelled or paused"):
        check_transition(DeclarationKind.CAMPAIGN, "c", DeclarationState.RUNNING, DeclarationState.COMPLETED)
    with pytest.raises(ConflictError, match="cannot become running: it has ended"):
        check_transition(DeclarationKind.TOURNAMENT, "t", DeclarationState.CANCELLED, DeclarationState.RUNNING)


def test_verbs_lead_to_states_that_a_client_may_request() -> None:
    assert set(VERBS.values()) == {goal for _, goal in _ALLOWED}
    assert [state for state in DeclarationState if state.ended] == ["completed", "cancelled"]
