"""Conformance of every strategy; an entry of ``STRATEGIES`` without a class here fails the last test."""

from __future__ import annotations

from speciate.search.strategies import STRATEGIES, build_strategy
from speciate.search.strategy import Strategy
from tests.support.strategies import StrategyConformance


class TestBestOfN(StrategyConformance):
    kind = "best_of_n"
    most_elites = 25

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {})


class TestIslandsMapElites(StrategyConformance):
    kind = "islands_map_elites"

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {"migration_interval": 2})


class TestIslandsMapElitesByPuct(StrategyConformance):
    kind = "islands_map_elites"

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {"migration_interval": 2, "selection": "puct"})


class TestSequentialRevision(StrategyConformance):
    kind = "sequential_revision"
    most_elites = 2 * 26

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {})


class TestRestartedChains(StrategyConformance):
    kind = "sequential_revision"
    most_elites = 3 * 26

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {"chains": 3, "accept": "always", "length": 4})


class TestMindEvolution(StrategyConformance):
    kind = "mind_evolution"
    most_elites = 2 * (25 + 20 + 5)

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {})


class TestMindEvolutionWithShortIntervals(StrategyConformance):
    kind = "mind_evolution"

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {"islands": 4, "turns": 2, "reset_interval": 1, "resets": 3})


class TestVectorEvolution(StrategyConformance):
    kind = "vector_evolution"
    most_elites = 25 + 32

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {})


class TestAdaptiveEvolution(StrategyConformance):
    kind = "adaptive_evolution"
    most_elites = 25 + 32

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {})


class TestIslandsWithResets(StrategyConformance):
    kind = "islands_map_elites"

    def make_strategy(self) -> Strategy:
        options = {"reset_interval": 2, "migration_interval": 3, "features": ["length", "novelty"]}
        return build_strategy(self.kind, options)


class TestOneIslandByRandomScalarization(StrategyConformance):
    kind = "islands_map_elites"

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {"islands": 1, "selection": "random_scalarization", "crossover": 1.0})


def test_every_strategy_is_tested() -> None:
    tested = {each.kind for each in StrategyConformance.__subclasses__()}
    assert tested == set(STRATEGIES)
