"""Every strategy passes the suite; a new line in ``STRATEGIES`` without a class here fails the last test."""

from __future__ import annotations

import pytest

from speciate.search.strategies import STRATEGIES, build_strategy
from speciate.search.strategy import Strategy
from speciate.testing.strategies import StrategyConformance


class TestBestOfN(StrategyConformance):
    kind = "best_of_n"
    most_elites = 25

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {})


class TestIslandsMapElites(StrategyConformance):
    kind = "islands_map_elites"

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {"migration_interval": 2})


class TestOneIslandByRandomScalarization(StrategyConformance):
    kind = "islands_map_elites"

    def make_strategy(self) -> Strategy:
        return build_strategy(self.kind, {"islands": 1, "selection": "random_scalarization", "crossover": 1.0})


def test_no_strategy_goes_untested() -> None:
    assert {each.kind for each in (TestBestOfN, TestIslandsMapElites)} == set(STRATEGIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_stands_under_its_own_name(name: str) -> None:
    assert build_strategy(name, {}).name == name
