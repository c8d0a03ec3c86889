"""Tests of tournament declarations: validation, running order and extensions."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from speciate.domain.errors import ConflictError
from speciate.domain.tournament import Extension, Schedule, StoppingRule, Tournament
from speciate.tournaments.head_to_head import head_to_head, methods_head_to_head


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
        ({"budget": {"evaluations": 5, "seconds": 9}}, "seconds depend"),
        ({"entrants": [{"name": "a", "policy": "x"}, {"name": "b", "policy": "y", "against": "b"}]}, "another entrant"),
        ({"entrants": [{"name": "a", "policy": "x"}, {"name": "b", "policy": "y", "budget": {}}]}, "of its own"),
        ({"seeds": range(1000), "problems": [f"p{i}" for i in range(501)]}, "at most 1,000,000"),
    ],
)
def test_invalid_tournament_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _declared(**changes)


def test_fixed_plan_goes_seed_by_seed_with_adjacent_pairs() -> None:
    plan = list(Schedule.of(_declared()).plan())
    assert plan[:4] == [("p", 5, "a"), ("p", 5, "b"), ("q", 5, "a"), ("q", 5, "b")]
    assert [planned.seed for planned in plan] == [5] * 6 + [6] * 6


def test_e_process_plan_goes_problem_by_problem_in_an_order_set_by_the_digest() -> None:
    problems = [f"p{i}" for i in range(30)]
    schedule = Schedule.of(_declared(stopping="e_process", problems=problems))
    assert sorted(schedule.problems) == sorted(problems)
    assert list(schedule.problems) != problems
    assert schedule.problems == Schedule.of(_declared(stopping="e_process", problems=problems)).problems
    assert schedule.problems != Schedule.of(_declared(stopping="e_process", problems=problems, slug="u")).problems
    first = [planned.problem for planned in schedule.plan()][:4]
    assert set(first) == {schedule.problems[0]}


def test_extension_appends_and_rejects_repetitions() -> None:
    more = Extension(problems=("s",), seeds=(9,), reason="power")
    schedule = Schedule.of(_declared(), [more])
    assert (schedule.problems, schedule.seeds) == (("p", "q", "r", "s"), (5, 6, 9))
    with pytest.raises(ConflictError, match="already has problem 's'"):
        schedule.extended(Extension(problems=("s",), reason="again"))
    with pytest.raises(ConflictError, match="already has seed 5"):
        schedule.extended(Extension(seeds=(5,), reason="again"))
    with pytest.raises(ConflictError, match="repeats"):
        schedule.extended(Extension(problems=("u", "u"), reason="again"))
    with pytest.raises(ConflictError, match="bets"):
        Schedule.of(_declared(stopping="e_process")).extended(more)
    with pytest.raises(ValidationError, match="extension is empty"):
        Extension(reason="none")


def test_head_to_head_compares_within_each_group_and_with_the_baseline() -> None:
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


def test_every_entrant_gets_the_same_budget_and_one_lane() -> None:
    declared = _declared()
    specs = [declared.spec(entrant, 5) for entrant in declared.entrants]
    assert specs[0] == specs[1]
    assert (specs[0].budget.evaluations, specs[0].lanes, specs[0].seed) == (10, 1, 5)


def _runs(method: str, *seeds: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {"name": f"{method}-{seed}", "policy": f"{method}-{seed}", "method": method, "training_seed": seed, **changes}
        for seed in seeds
    ]


def test_training_runs_form_groups_that_are_compared_within_one_search() -> None:
    islands = [{**run, "name": f"{run['name']}-b", "strategy": "best_of_n"} for run in _runs("vpo", 2, 1)]
    entrants = [*_runs("grpo", 2, 1), *_runs("vpo", 1, 2, batch=8), *_runs("rlvr", 1, 3), *islands]
    declared = _declared(entrants=[{"name": "a", "policy": "x"}, *entrants])
    assert declared.baseline_method == "grpo"
    assert [(a.method, b.method, a.paired_with(b)) for a, b in declared.method_comparisons] == [
        ("vpo", "grpo", True),
        ("rlvr", "grpo", False),
    ]
    assert [(group.method, group.seeds) for group in declared.method_groups] == [
        ("grpo", (1, 2)),
        ("vpo", (1, 2)),
        ("rlvr", (1, 3)),
        ("vpo", (1, 2)),
    ]
    assert _declared(entrants=entrants, baseline="vpo-1").baseline_method == "vpo"


@pytest.mark.parametrize(
    ("entrants", "message"),
    [
        ([{"name": "a", "policy": "x", "method": "vpo"}, {"name": "b", "policy": "y"}], "declared together"),
        ([{"name": "a", "policy": "x", "training_seed": 1}, {"name": "b", "policy": "y"}], "declared together"),
        ([*_runs("a", 1, policy={"x": 1, "y": 2}), *_runs("b", 1)], "ensemble is not a training run"),
        (
            [*_runs("a", 1), *_runs("a", 1, name="again"), *_runs("b", 1)],
            "training seed of method 'a' 1 is named twice",
        ),
        ([*_runs("a", 1), *_runs("a", 2, batch=8), *_runs("b", 1)], "differ in how they are asked"),
        ([*_runs("a", 1), *_runs("b", 1, strategy="best_of_n")], "no two methods are searched in the same way"),
        ([*_runs("a", 1), *_runs("a", 2)], "no two methods"),
    ],
)
def test_invalid_training_runs_are_rejected(entrants: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _declared(entrants=entrants, baseline=entrants[0]["name"])


def test_methods_need_a_fixed_stopping_rule() -> None:
    with pytest.raises(ValidationError, match="expected stopping 'fixed'"):
        _declared(entrants=[*_runs("a", 1), *_runs("b", 1)], baseline="a-1", stopping="e_process")


def test_methods_are_stored_only_if_declared() -> None:
    assert _declared().digest == "1b2be2a956f00b4a3051dc75a55c321fcb5891ac65ce70fbe852d3ed547bbfd4"
    declared = _declared(entrants=[*_runs("a", 1), *_runs("b", 1)], baseline="a-1")
    assert Tournament.model_validate(declared.stored_json()) == declared
    assert declared.stored_json()["entrants"][0].items() >= {"method": "a", "training_seed": 1}.items()


def test_a_head_to_head_of_methods_pairs_training_runs() -> None:
    entrants, baseline = methods_head_to_head({"grpo": [("g-0", 0), ("g-1", 1)], "vpo": [("v-0", 0), ("v-1", 1)]})
    declared = _declared(entrants=[entrant.model_dump() for entrant in entrants], baseline=baseline)
    assert len(declared.method_comparisons) == 2  # independent and evolved
    assert set(declared.comparisons) == {
        ("v-0-independent", "g-0-independent"),
        ("v-1-independent", "g-1-independent"),
        ("g-0-evolved", "g-0-independent"),
        ("g-1-evolved", "g-1-independent"),
        ("v-0-evolved", "g-0-evolved"),
        ("v-1-evolved", "g-1-evolved"),
    }
    more, _ = methods_head_to_head({"grpo": [("g-0", 0)], "vpo": [("v-0", 0), ("v-1", 1)]})
    assert [entrant.against for entrant in more if entrant.name == "v-1-independent"] == ["g-0-independent"]


@pytest.mark.parametrize(("rivals", "needed"), [(1, 6), (3, 7), (8, 9)])
def test_too_few_problems_are_reported(rivals: int, needed: int) -> None:
    names = ["a", *(f"b{i}" for i in range(rivals))]
    declared = _declared(entrants=[{"name": name, "policy": name} for name in names])
    assert 2.0 ** (1 - needed) * rivals <= declared.alpha < 2.0 ** (2 - needed) * rivals
    assert declared.too_few(needed) == ""
    assert (
        declared.too_few(needed - 1)
        == f"{needed - 1} problems cannot decide any comparison: expected at least {needed}"
    )
    assert declared.too_few(1).startswith("1 problem cannot decide")
    assert declared.model_copy(update={"stopping": StoppingRule.E_PROCESS}).too_few(1) == ""


_B = {"name": "b", "policy": "y"}


def test_duplicate_copies_its_entrant_and_runs_with_seeds_of_its_own() -> None:
    planted = _declared(
        entrants=[_B, {**_B, "name": "c", "batch": 9}, {"name": "n", "duplicate_of": "c"}], baseline="b"
    )
    copied = planted.entrant("n")
    assert (copied.policy, copied.batch, copied.duplicate_of) == ("y", 9, "c")
    assert (planted.comparisons, planted.nulls) == ((("c", "b"),), (("n", "c"),))
    seeds = [planted.spec(copied, seed).seed for seed in (5, 6)]
    assert len({5, 6, *seeds}) == 4
    assert planted.spec(planted.entrant("c"), 5).seed == 5
    assert [planted.spec(copied, seed).seed for seed in (5, 6)] == seeds
    assert Tournament.model_validate(planted.stored_json()).digest == planted.digest
    assert "duplicate_of" not in _declared().stored_json()["entrants"][0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"duplicate_of": "z"}, "expected an entrant that is no duplicate"),
        ({"duplicate_of": "z", "policy": "y"}, "expected an entrant that is no duplicate"),
        ({"duplicate_of": "n"}, "expected an entrant that is no duplicate"),
        ({"duplicate_of": "b", "batch": 2}, "differs from it"),
        ({"duplicate_of": "b", "against": "a"}, "compared with it alone"),
    ],
)
def test_invalid_duplicates_are_rejected(changes: dict[str, Any], message: str) -> None:
    given = [{"name": "a", "policy": "x"}, {"name": "b", "policy": "y"}, {"name": "n", **changes}]
    with pytest.raises(ValidationError, match=message):
        _declared(entrants=given)


def test_duplicates_are_no_opponents() -> None:
    copied = {"name": "n", "duplicate_of": "b"}
    with pytest.raises(ValidationError, match="besides duplicates"):
        _declared(entrants=[_B, copied], baseline="b")
    with pytest.raises(ValidationError, match="compared with it alone"):
        _declared(entrants=[{"name": "a", "policy": "x"}, _B, copied], baseline="n")
    with pytest.raises(ValidationError, match="compared with it alone"):
        _declared(entrants=[{"name": "a", "policy": "x", "against": "n"}, _B, copied], baseline="b")
