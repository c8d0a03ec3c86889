"""What every strategy owes its callers. Inherit ``StrategyConformance`` in a pytest class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np

from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.search.strategy import Evaluated, Placement, Selection, Strategy
from speciate.testing.population import ListView, SharedTables, raw_rewards, synthetic_batch, vector_problem

_BATCH: Final = 16


def _problems() -> list[Problem]:
    return [
        vector_problem(1),
        vector_problem(4, weights={"r0": 1.0, "r2": 3.0}),
        vector_problem(4, minimised=True, constrained=True, seed_program=""),
        vector_problem(300),
    ]


class StrategyConformance(ABC):
    """The suite.

    Attributes:
        most_elites: Bound on the occupied cells of all islands together.
    """

    most_elites: ClassVar[int] = 1024

    @abstractmethod
    def make_strategy(self) -> Strategy:
        """Return the strategy that is tested."""

    def fill(self, view: ListView, batches: int, *, violate: bool = False) -> None:
        """Run batches of random candidates through the strategy, each on the island that it selects."""
        strategy = self.make_strategy()
        rng = np.random.default_rng(view.seed)
        for _ in range(batches):
            view.grant(strategy.maintain(view, rng))
            island = strategy.select(view, rng).island
            first = 2 + view.batch * _BATCH
            view.grant(strategy.place(view, synthetic_batch(view.problem, first, _BATCH, island, rng, violate=violate)))
            view.batch += 1

    def test_it_names_itself_and_is_built_from_its_config(self) -> None:
        """The name is set, the config has defaults for everything and a description of every option."""
        strategy = self.make_strategy()
        assert strategy.name
        assert strategy.islands >= 1
        strategy.Config()
        assert all(field.description for field in strategy.Config.model_fields.values())

    def test_an_empty_population_is_no_obstacle(self) -> None:
        """Without elites: propose, or change the seed; nothing to place and nothing to maintain."""
        strategy = self.make_strategy()
        for problem in _problems():
            for seed_number in (None, 1):
                view = ListView(problem, seed_number=seed_number)
                for view.batch in range(2 * strategy.islands):
                    rng = np.random.default_rng(view.batch)
                    assert tuple(strategy.maintain(view, rng)) == ()
                    assert tuple(strategy.place(view, [])) == ()
                    selection = strategy.select(view, rng)
                    assert set(selection.parents) <= {seed_number}
                    assert (selection.role is PolicyRole.PROPOSE) == (not selection.parents)

    def test_selections_name_elites_or_the_seed(self) -> None:
        """Whom a prompt shows is in the archive, is shown once, and stands on an island that exists."""
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
        """Another instance with the same view and the same state of the generator answers the same."""
        for problem in _problems():
            view = SharedTables(problem, seed=3)
            self.fill(view, 12)
            assert self._answers(view) == self._answers(view)

    def test_the_view_is_left_alone(self) -> None:
        """Nothing that a view hands out is written to (its tables refuse), and its cells stay as they are."""
        for problem in _problems():
            view = SharedTables(problem)
            self.fill(view, 12)
            before = view.snapshot()
            self._answers(view)
            assert view.snapshot() == before

    def test_global_randomness_is_left_alone(self) -> None:
        """Neither read nor moved: NumPy's global generator stands where it stood, and does not matter."""
        view = ListView(_problems()[1])
        self.fill(view, 8)
        before = str(np.random.get_state(legacy=False))  # noqa: NPY002 - it is this generator that is watched
        first = self._answers(view)
        assert str(np.random.get_state(legacy=False)) == before  # noqa: NPY002
        np.random.random()  # noqa: NPY002
        assert self._answers(view) == first

    def test_placements_are_the_candidates_own(self) -> None:
        """A wish names a candidate of the batch with its rewards, on an island that exists, at a finite fitness."""
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

    def test_wishes_are_worth_a_write(self) -> None:
        """Every wish would be granted as the view stands, none names a cell twice, equals of elites displace nobody."""
        strategy = self.make_strategy()
        for problem in _problems():
            view = ListView(problem)
            self.fill(view, 6)
            batch = synthetic_batch(problem, 9000, _BATCH, 0, np.random.default_rng(1))
            wishes = strategy.place(view, batch)
            assert view.grant(wishes) == len(wishes)
            stayed = [candidate for candidate in batch if candidate.number in view.numbers()]
            for size in (1, 3, _BATCH):
                twins = [Evaluated(99_000 + i, 0, c.program, c.rewards) for i, c in enumerate(stayed[:size])]
                assert tuple(strategy.place(view, twins)) == ()

    def test_every_new_specialist_stays(self) -> None:
        """Who is the best by far at one objective gets a cell although it is the worst at every other."""
        strategy = self.make_strategy()
        problem = vector_problem(8, minimised=True)
        view = ListView(problem)
        self.fill(view, 4 * strategy.islands)
        for island in range(strategy.islands):
            for j in range(8):
                point = [-0.5] * 8
                point[j] = 3.0
                specialist = Evaluated(70_000 + 8 * island + j, island, "x = 0\n", raw_rewards(problem, point))
                view.grant(strategy.place(view, [specialist]))
        assert view.numbers() >= {70_000 + i for i in range(8 * strategy.islands)}

    def test_who_is_better_everywhere_stays_among_300_objectives(self) -> None:
        """A bounded archive cannot hold 300 specialists, but it never loses who dominates everybody."""
        strategy = self.make_strategy()
        problem = vector_problem(300)
        view = ListView(problem)
        self.fill(view, 8)
        view.grant(strategy.place(view, [Evaluated(70_000, 0, "x = 0\n", (2.0,) * 300)]))
        assert 70_000 in view.numbers()

    def test_a_violation_never_displaces_who_obeys(self) -> None:
        """However good, who violates a constraint takes no cell from who obeys all of them, however poor."""
        strategy = self.make_strategy()
        problem = vector_problem(4, constrained=True)
        view = ListView(problem)
        for island in range(strategy.islands):
            poor = Evaluated(10 + island, island, "x = 0\n", raw_rewards(problem, [-7.0] * 4))
            view.grant(strategy.place(view, [poor]))
            cheat = Evaluated(50 + island, island, "x = 0\n", raw_rewards(problem, [9.0] * 4, excess=0.01))
            assert tuple(strategy.place(view, [cheat])) == ()
        self.fill(view, 12, violate=True)
        assert view.size() > 0

    def test_maintenance_moves_elites_and_nothing_else(self) -> None:
        """What maintenance places is an elite already, with its own rewards."""
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
        """2,000 candidates later there are no more cells than the bound, and none that a batch must wait for."""
        for problem in (vector_problem(1), vector_problem(4), vector_problem(32)):
            view = ListView(problem)
            self.fill(view, 125)
            assert 0 < view.size() <= self.most_elites

    def _answers(self, view: ListView) -> tuple[list[Selection], list[Placement], list[Placement]]:
        strategy = self.make_strategy()
        rng = np.random.default_rng(11)
        batch = synthetic_batch(view.problem, 8000, 4, 0, np.random.default_rng(12))
        return (
            [strategy.select(view, rng) for _ in range(6)],
            list(strategy.place(view, batch)),
            list(strategy.maintain(view, rng)),
        )
