"""Conformance tests of strategies. Inherit ``StrategyConformance`` in a pytest class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from speciate.domain.documented import attribute_docs
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.search.cells import TARGET
from speciate.search.strategy import Placement, Selection, Strategy
from speciate.search.targets import place_candidates, select_parents
from tests.support.population import (
    ListView,
    SharedTables,
    evaluated,
    ladder_problem,
    raw_rewards,
    synthetic_batch,
    vector_problem,
)

_BATCH: Final = 16


def _problems() -> list[Problem]:
    return [
        vector_problem(1),
        vector_problem(4, weights={"r0": 1.0, "r2": 3.0}),
        vector_problem(4, minimised=True, constrained=True, seed_program=""),
        vector_problem(300),
    ]


class StrategyConformance(ABC):
    """The test suite.

    Attributes:
        most_elites: Upper bound on the occupied cells of all islands together, without target cells.
    """

    most_elites: ClassVar[int] = 1024

    @abstractmethod
    def make_strategy(self) -> Strategy:
        """Return the strategy under test."""

    def fill(self, view: ListView, batches: int, *, violate: bool = False) -> None:
        """Run batches of random candidates through the strategy, each on its selected island."""
        strategy = self.make_strategy()
        rng = np.random.default_rng(view.seed)
        for _ in range(batches):
            view.grant(strategy.maintain(view, rng))
            island = select_parents(strategy, view, rng).island
            first = 2 + view.batch * _BATCH
            batch = synthetic_batch(view.problem, first, _BATCH, island, rng, violate=violate)
            view.grant(place_candidates(strategy, view, batch))
            view.batch += 1

    def test_it_has_a_documented_config(self) -> None:
        """The config has a default and a description for every option."""
        strategy = self.make_strategy()
        assert strategy.islands >= 1
        strategy.Config()
        assert attribute_docs(strategy.Config).keys() >= strategy.Config.model_fields.keys()

    def test_an_empty_population_is_valid(self) -> None:
        """Without elites the strategy proposes or changes the seed program."""
        strategy = self.make_strategy()
        for problem in _problems():
            for seed_number in (None, 1):
                view = ListView(problem, seed_number=seed_number)
                for view.batch in range(2 * strategy.islands):
                    rng = np.random.default_rng(view.batch)
                    assert tuple(strategy.maintain(view, rng)) == ()
                    selection = strategy.select(view, rng)
                    assert set(selection.parents) <= {seed_number}
                    assert (selection.role is PolicyRole.PROPOSE) == (not selection.parents)

    def test_selections_name_elites_or_the_seed(self) -> None:
        """Selected programs are distinct elites or the seed program, on an existing island."""
        strategy = self.make_strategy()
        for problem in _problems():
            view = ListView(problem)
            self.fill(view, 2 * strategy.islands)
            known = view.numbers() | {view.seed_number}
            for view.batch in range(40):
                selection = strategy.select(view, np.random.default_rng(view.batch))
                shown = (*selection.parents, *selection.inspirations)
                assert known.issuperset(shown)
                assert len(set(shown)) == len(shown)
                assert all(type(number) is int for number in shown)
                assert 0 <= selection.island < strategy.islands
                assert (selection.role is PolicyRole.MUTATE) == bool(selection.parents)

    def test_equal_views_and_generators_give_equal_results(self) -> None:
        """Another instance with the same view and generator state returns the same results."""
        for problem in _problems():
            view = SharedTables(problem, seed=3)
            self.fill(view, 12)
            assert self._answers(view) == self._answers(view)

    def test_the_view_is_not_changed(self) -> None:
        """The strategy does not write to the tables of the view (which are read-only) or change its cells."""
        for problem in _problems():
            view = SharedTables(problem)
            self.fill(view, 12)
            before = view.snapshot()
            self._answers(view)
            assert view.snapshot() == before

    def test_global_randomness_is_not_used(self) -> None:
        """The strategy neither reads nor advances NumPy's global generator."""
        view = ListView(_problems()[1])
        self.fill(view, 8)
        before = str(np.random.get_state(legacy=False))  # noqa: NPY002 - the generator under test
        first = self._answers(view)
        assert str(np.random.get_state(legacy=False)) == before  # noqa: NPY002
        np.random.random()  # noqa: NPY002
        assert self._answers(view) == first

    def test_placements_belong_to_the_batch(self) -> None:
        """A placement names a candidate of the batch with its rewards, an existing island and a finite fitness."""
        strategy = self.make_strategy()
        for problem in _problems():
            view = ListView(problem)
            rng = np.random.default_rng(5)
            for island in range(strategy.islands):
                batch = synthetic_batch(problem, 100 * (island + 1), _BATCH, island, rng)
                rewards = {candidate.number: candidate.rewards for candidate in batch}
                for placement in strategy.place(view, batch):
                    assert rewards[placement.number] == placement.rewards
                    assert placement.island == island
                    assert np.isfinite(placement.fitness)

    def test_bids_would_be_accepted(self) -> None:
        """The store would accept every bid, no cell is named twice, and equals of elites displace none of them."""
        strategy = self.make_strategy()
        for problem in _problems():
            view = ListView(problem)
            self.fill(view, 6)
            batch = synthetic_batch(problem, 9000, _BATCH, 0, np.random.default_rng(1))
            bids = strategy.place(view, batch)
            assert view.grant(bids) == len(bids)
            stayed = [candidate for candidate in batch if candidate.number in view.numbers()]
            for size in (1, 3, _BATCH):
                copies = [evaluated(99_000 + i, 0, c.program, c.rewards) for i, c in enumerate(stayed[:size])]
                assert not copies or tuple(strategy.place(view, copies)) == ()

    def test_every_new_specialist_stays(self) -> None:
        """A candidate that is best by far at one objective gets a cell although it is worst at every other."""
        strategy = self.make_strategy()
        problem = vector_problem(8, minimised=True)
        view = ListView(problem)
        self.fill(view, 4 * strategy.islands)
        for island in range(strategy.islands):
            for j in range(8):
                point = [-0.5] * 8
                point[j] = 3.0
                specialist = evaluated(70_000 + 8 * island + j, island, "x = 0\n", raw_rewards(problem, point))
                view.grant(strategy.place(view, [specialist]))
        assert view.numbers() >= {70_000 + i for i in range(8 * strategy.islands)}

    def test_candidates_that_meet_a_target_stay(self) -> None:
        """On every island the best candidates that meet a target hold its cells, after migrations and resets."""
        strategy = self.make_strategy()
        problem = ladder_problem()
        view, rng, winners = ListView(problem), np.random.default_rng(7), dict[tuple[int, str], float]()
        for _ in range(40 * strategy.islands):
            view.grant(strategy.maintain(view, rng))
            island = select_parents(strategy, view, rng).island
            batch = synthetic_batch(problem, 2 + view.batch * _BATCH, _BATCH, island, rng)
            batch = [replace(candidate, targets=problem.targets_met(candidate.rewards)) for candidate in batch]
            for candidate in batch:
                mean = float(problem.space.normalise([candidate.rewards]).mean())
                for i, target in enumerate(problem.targets):
                    if candidate.targets >> i & 1:
                        at = (island, f"{TARGET}{target.name}/even")
                        winners[at] = max(mean, winners.get(at, mean))
            view.grant(place_candidates(strategy, view, batch))
            view.batch += 1
        held = view.snapshot()
        assert {cell for _, cell in winners} >= {f"{TARGET}easy/even", f"{TARGET}hard/even"}
        for at, mean in winners.items():
            assert held[at].fitness >= mean - 1e-12
        bits = {target.name: 1 << i for i, target in enumerate(problem.targets)}
        for (_, cell), placement in held.items():
            name, _, slot = cell.removeprefix(TARGET).partition("/")
            if cell.startswith(TARGET) and not slot.startswith(("near", "but")):
                assert problem.targets_met(placement.rewards) & bits[name]

    def test_a_dominating_candidate_stays_among_300_objectives(self) -> None:
        """A bounded archive cannot hold 300 specialists, but it keeps a candidate that dominates all others."""
        strategy = self.make_strategy()
        problem = vector_problem(300)
        view = ListView(problem)
        self.fill(view, 8)
        view.grant(strategy.place(view, [evaluated(70_000, 0, "x = 0\n", (2.0,) * 300)]))
        assert 70_000 in view.numbers()

    def test_an_infeasible_candidate_never_displaces_a_feasible_one(self) -> None:
        """An infeasible candidate with high rewards takes no cell from a feasible one with low rewards."""
        strategy = self.make_strategy()
        problem = vector_problem(4, constrained=True)
        view = ListView(problem)
        for island in range(strategy.islands):
            poor = evaluated(10 + island, island, "x = 0\n", raw_rewards(problem, [-7.0] * 4))
            view.grant(strategy.place(view, [poor]))
            infeasible = evaluated(50 + island, island, "x = 0\n", raw_rewards(problem, [9.0] * 4, excess=0.01))
            assert tuple(strategy.place(view, [infeasible])) == ()
        self.fill(view, 12, violate=True)
        assert view.size() > 0

    def test_maintenance_only_moves_elites(self) -> None:
        """``maintain`` places existing elites with their own rewards only."""
        strategy = self.make_strategy()
        for problem in _problems()[:3]:
            view = ListView(problem)
            self.fill(view, 4 * strategy.islands)
            rewards = {p.number: p.rewards for p in view.snapshot().values()}
            for view.batch in range(200):
                for placement in strategy.maintain(view, np.random.default_rng(view.batch)):
                    assert rewards[placement.number] == placement.rewards
                    assert 0 <= placement.island < strategy.islands

    def test_the_archive_is_bounded(self) -> None:
        """After 2,000 candidates the number of cells stays within the bound."""
        for problem in (vector_problem(1), vector_problem(4), vector_problem(32)):
            view = ListView(problem)
            self.fill(view, 125)
            targets = len(problem.targets) * 16 * self.make_strategy().islands
            assert 0 < view.size() <= self.most_elites + targets

    def _answers(self, view: ListView) -> tuple[list[Selection], list[Placement], list[Placement]]:
        strategy = self.make_strategy()
        rng = np.random.default_rng(11)
        batch = synthetic_batch(view.problem, 8000, 4, 0, np.random.default_rng(12))
        return (
            [strategy.select(view, rng) for _ in range(6)],
            list(strategy.place(view, batch)),
            list(strategy.maintain(view, rng)),
        )
