"""Chains of revisions: the latest answer, drafts and restarts."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import PolicyRole
from speciate.search.strategies import build_strategy
from speciate.search.strategy import Selection, Strategy
from tests.support.population import ListView, evaluated, vector_problem

PROBLEM = vector_problem(1)


def one_chain(**options: object) -> Strategy:
    return build_strategy("sequential_revision", {"chains": 1, "drafts": 0, **options})


def answer(strategy: Strategy, view: ListView, number: int, reward: float, chain: int = 0) -> None:
    view.grant(strategy.place(view, [evaluated(number, chain, "x = 0\n", (reward,))]))


def selected(strategy: Strategy, view: ListView, seed: int = 0) -> Selection:
    return strategy.select(view, np.random.default_rng(seed))


def test_a_chain_begins_from_scratch_and_then_revises_its_last_answer_alone() -> None:
    strategy, view = one_chain(), ListView(PROBLEM)
    assert selected(strategy, view).role is PolicyRole.PROPOSE
    answer(strategy, view, 2, 0.5)
    selection = selected(strategy, view)
    assert (selection.role, selection.parents, selection.inspirations) == (PolicyRole.MUTATE, (2,), ())


@pytest.mark.parametrize(("accept", "last"), [("not_worse", 2), ("always", 3)])
def test_accepting_a_worse_revision_is_an_option(accept: str, last: int) -> None:
    strategy, view = one_chain(accept=accept), ListView(PROBLEM)
    answer(strategy, view, 2, 0.5)
    view.batch = 1
    answer(strategy, view, 3, 0.4)
    assert selected(strategy, view).parents == (last,)
    assert 2 in view.numbers()


def test_an_equally_good_revision_is_accepted() -> None:
    strategy, view = one_chain(), ListView(PROBLEM)
    answer(strategy, view, 2, 0.5)
    view.batch = 1
    answer(strategy, view, 3, 0.5)
    assert selected(strategy, view).parents == (3,)


def test_the_best_of_a_batch_is_the_last_answer() -> None:
    strategy, view = one_chain(accept="always"), ListView(PROBLEM)
    batch = [evaluated(2 + i, 0, "x = 0\n", (reward,)) for i, reward in enumerate((0.1, 0.9, 0.3))]
    view.grant(strategy.place(view, batch))
    assert selected(strategy, view).parents == (3,)


def test_a_late_answer_is_accepted_only_if_it_is_better() -> None:
    strategy, view = one_chain(), ListView(PROBLEM, batch=5)
    answer(strategy, view, 20, 0.5)
    view.batch = 3
    answer(strategy, view, 10, 0.5)
    assert selected(strategy, view).parents == (20,)
    answer(strategy, view, 11, 0.6)
    assert selected(strategy, view).parents == (11,)


def test_chains_are_independent() -> None:
    strategy, view = build_strategy("sequential_revision", {"chains": 2, "drafts": 0}), ListView(PROBLEM)
    answer(strategy, view, 2, 0.9, chain=0)
    answer(strategy, view, 3, 0.1, chain=1)
    chosen = {(s.island, s.parents) for s in (selected(strategy, view, seed) for seed in range(40))}
    assert chosen == {(0, (2,)), (1, (3,))}
    assert strategy.maintain(view, np.random.default_rng(0)) == ()


def test_a_chain_restarts_at_its_length_and_forgets_what_was_better() -> None:
    strategy, view = one_chain(length=10), ListView(PROBLEM, batch=9)
    answer(strategy, view, 2, 0.9)
    assert selected(strategy, view).parents == (2,)
    view.batch = 10
    assert selected(strategy, view).role is PolicyRole.PROPOSE
    answer(strategy, view, 3, 0.1)
    assert selected(strategy, view).parents == (3,)
    assert 2 in view.numbers()


def test_a_late_answer_of_the_old_chain_does_not_enter_the_new_one() -> None:
    strategy, view = one_chain(length=10), ListView(PROBLEM, batch=10)
    answer(strategy, view, 3, 0.1)
    view.batch = 8
    answer(strategy, view, 2, 0.9)
    view.batch = 11
    assert selected(strategy, view).parents == (3,)


def test_chains_restart_one_after_the_other() -> None:
    strategy, view = (
        build_strategy("sequential_revision", {"chains": 2, "drafts": 0, "length": 10}),
        ListView(PROBLEM, batch=4),
    )
    for chain in (0, 1):
        answer(strategy, view, 2 + chain, 0.5, chain)
    view.batch = 5
    roles = {s.island: s.role for s in (selected(strategy, view, seed) for seed in range(40))}
    assert roles == {0: PolicyRole.MUTATE, 1: PolicyRole.PROPOSE}


def test_a_restarted_chain_writes_its_drafts_first() -> None:
    options = {"chains": 2, "drafts": 3, "length": 10, "accept": "always"}
    strategy, view = build_strategy("sequential_revision", options), ListView(PROBLEM)
    for view.batch, reward in enumerate((0.2, 0.8, 0.5)):
        assert {selected(strategy, view, seed).role for seed in range(20)} == {PolicyRole.PROPOSE}
        for chain in (0, 1):
            answer(strategy, view, 2 + 2 * view.batch + chain, reward, chain)
    view.batch = 3
    chosen = {(s.island, s.parents) for s in (selected(strategy, view, seed) for seed in range(40))}
    assert chosen == {(0, (4,)), (1, (5,))}


def test_a_chain_revises_its_best_draft() -> None:
    strategy, view = one_chain(drafts=3), ListView(PROBLEM)
    for view.batch, reward in enumerate((0.2, 0.8, 0.5)):
        assert selected(strategy, view).role is PolicyRole.PROPOSE
        answer(strategy, view, 2 + view.batch, reward)
    view.batch = 3
    assert selected(strategy, view).parents == (3,)


def test_a_length_within_the_drafts_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="more than drafts, 5"):
        one_chain(drafts=5, length=5)
