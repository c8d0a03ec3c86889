"""Declarations of campaigns, and the moves that they allow."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from speciate.domain.campaign import Campaign, CampaignState, check_move
from speciate.domain.errors import ConflictError


def _declared(**changes: object) -> Campaign:
    return Campaign.model_validate(
        {"slug": "c", "problems": ["p", "q"], "policy": "one", "evaluations": 100, "slice": 30, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problems": ["p", "p"]}, "problem 'p' is named twice"),
        ({"problems": []}, "at least 1 item"),
        ({"mode": "greedy"}, "'adaptive' or 'fixed'"),
        ({"evaluations": 0}, "greater than or equal to 1"),
        ({"evaluations": True}, "valid integer"),
        ({"slice": 0}, "greater than or equal to 1"),
        ({"policy": {}}, "at least 1 item"),
        ({"policy": {"one": 0}}, "greater than 0"),
        ({"lanes": 4}, "Extra inputs"),
    ],
)
def test_what_cannot_be_searched_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _declared(**changes)


def test_what_gives_every_problem_something() -> None:
    assert (_declared().least, _declared(mode="fixed").least) == (60, 2)
    assert (_declared().slices, _declared(mode="fixed").slices) == (4, 2)


def test_its_runs_stop_at_the_unlock_and_follow_from_the_seed() -> None:
    spec = _declared(seed=7, strategy="best_of_n").spec()
    assert (spec.seed, spec.lanes, spec.stop_on_unlock, spec.budget.evaluations) == (7, 1, True, 100)


def test_one_policy_is_an_ensemble_of_one() -> None:
    assert _declared().policy == {"one": 1.0}
    assert _declared().digest == _declared(policy={"one": 1}).digest


def test_what_has_ended_stays_so() -> None:
    check_move("c", CampaignState.PAUSED, CampaignState.RUNNING)
    with pytest.raises(ConflictError, match="cannot become running: it has ended"):
        check_move("c", CampaignState.CANCELLED, CampaignState.RUNNING)
    with pytest.raises(ConflictError, match="only cancelled or paused"):
        check_move("c", CampaignState.RUNNING, CampaignState.COMPLETED)
