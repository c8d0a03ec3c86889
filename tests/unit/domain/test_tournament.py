"""Declarations: what can be compared, in which order it is run, and how it may grow."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from speciate.domain.errors import ConflictError
from speciate.domain.tournament import Course, Extension, StoppingRule, Tournament, head_to_head


def _declared(**changes: Any) -> Tournament:
    given = {
        "slug": "t",
        "problems": ["p", "q", "r"],
        "entrants": [{"name": "a", "policy": "x"}, {"name": "b", "policy": "y"}],
        "baseline": "a",
        "seeds": [5, 6],
        "budget": {"evaluations": 10},
        **changes,
    }
    return Tournament.model_validate(given)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entrants": [{"name": "a", "policy": "x"}]}, "expected at least 2"),
        ({"entrants": [{"name": "a", "policy": "x"}, {"name": "a", "policy": "y"}]}, "entrant 'a' is named twice"),
        ({"problems": ["p", "p"]}, "problem 'p' is named twice"),
        ({"baseline": "c"}, "expected one of a, b"),
        ({"budget": {"evaluations": 5, "seconds": 9}}, "seconds differ"),
        ({"entrants": [{"name": "a", "policy": "x"}, {"name": "b", "policy": "y", "against": "b"}]}, "another entrant"),
        ({"entrants": [{"name": "a", "policy": "x"}, {"name": "b", "policy": "y", "budget": {}}]}, "of its own"),
        ({"seeds": range(1000), "problems": [f"p{i}" for i in range(501)]}, "at most 1,000,000"),
    ],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _declared(**changes)


def test_a_fixed_plan_goes_seed_by_seed_with_pairs_side_by_side() -> None:
    plan = list(Course.of(_declared()).plan())
    assert plan[:4] == [("p", 5, "a"), ("p", 5, "b"), ("q", 5, "a"), ("q", 5, "b")]
    assert [planned.seed for planned in plan] == [5] * 6 + [6] * 6


def test_an_e_process_goes_problem_by_problem_in_an_order_that_follows_from_the_declaration() -> None:
    problems = [f"p{i}" for i in range(30)]
    course = Course.of(_declared(stopping="e_process", problems=problems))
    assert sorted(course.problems) == sorted(problems)
    assert list(course.problems) != problems
    assert course.problems == Course.of(_declared(stopping="e_process", problems=problems)).problems
    assert course.problems != Course.of(_declared(stopping="e_process", problems=problems, slug="u")).problems
    first = [planned.problem for planned in course.plan()][:4]
    assert set(first) == {course.problems[0]}


def test_extending_appends_and_never_repeats() -> None:
    more = Extension(problems=("s",), seeds=(9,), reason="power")
    course = Course.of(_declared(), [more])
    assert (course.problems, course.seeds) == (("p", "q", "r", "s"), (5, 6, 9))
    with pytest.raises(ConflictError, match="'s' is in tournament"):
        course.extended(Extension(problems=("s",), reason="again"))
    with pytest.raises(ConflictError, match="twice"):
        course.extended(Extension(problems=("u", "u"), reason="again"))
    with pytest.raises(ConflictError, match="bets"):
        Course.of(_declared(stopping="e_process")).extended(more)
    with pytest.raises(ValidationError, match="nothing is added"):
        Extension(reason="none")


def test_a_standard_head_to_head_compares_within_each_cell_and_with_the_floor() -> None:
    entrants, baseline = head_to_head(["base", "new@2"], mutator="m")
    declared = _declared(entrants=[entrant.model_dump() for entrant in entrants], baseline=baseline)
    assert baseline == "base-independent"
    assert set(declared.comparisons) == {
        ("new-v2-independent", "base-independent"),
        ("base-evolved", "base-independent"),
        ("new-v2-evolved", "base-evolved"),
        ("base-common-mutator", "base-independent"),
        ("new-v2-common-mutator", "base-common-mutator"),
    }
    assert {e.mutator for e in entrants if e.name.endswith("common-mutator")} == {"m"}
    assert {e.strategy for e in entrants if e.name.endswith("independent")} == {"best_of_n"}
    # A search that changes programs within small budgets: islands would spend a batch on each island first.
    assert {e.strategy for e in entrants if not e.name.endswith("independent")} == {"vector_evolution"}


def test_every_entrant_has_the_budget_of_the_tournament_and_one_lane() -> None:
    declared = _declared()
    specs = [declared.spec(entrant, 5) for entrant in declared.entrants]
    assert specs[0] == specs[1]
    assert (specs[0].budget.evaluations, specs[0].lanes, specs[0].seed) == (10, 1, 5)


@pytest.mark.parametrize(("rivals", "needed"), [(1, 6), (3, 7), (8, 9)])
def test_problems_that_can_decide_no_comparison_are_said_to_be_too_few(rivals: int, needed: int) -> None:
    names = ["a", *(f"b{i}" for i in range(rivals))]
    declared = _declared(entrants=[{"name": name, "policy": name} for name in names])
    assert 2.0 ** (1 - needed) * rivals <= declared.alpha < 2.0 ** (2 - needed) * rivals
    assert declared.too_few(needed) == ""
    assert declared.too_few(needed - 1) == f"{needed - 1} problems decide nothing: expected at least {needed}"
    assert declared.too_few(1).startswith("1 problem decides nothing")
    assert declared.model_copy(update={"stopping": StoppingRule.E_PROCESS}).too_few(1) == ""
