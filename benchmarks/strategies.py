"""CPU time of strategies per candidate, on archives of 100 to 10,000 candidates."""

from __future__ import annotations

import time

import numpy as np

from benchmarks.parts import median, show
from speciate.search.strategies import STRATEGIES, build_strategy
from speciate.search.strategy import Strategy
from speciate.settings import Settings
from tests.support.population import SharedTables, synthetic_batch, vector_problem

POPULATIONS = (100, 1_000, 10_000)
_BATCH, _PROMPTS, _ROUNDS = 16, 4, 60


def run(settings: Settings) -> None:
    """Measure maintaining, selecting for four prompts and placing sixteen candidates, of four rewards each."""
    rows = []
    for name in STRATEGIES:
        view, rng = SharedTables(vector_problem(4)), np.random.default_rng(0)
        costs = [_cost(build_strategy(name, {}), view, rng, population) for population in POPULATIONS]
        rows.append((name, view.size(), *costs, costs[-1] / costs[0]))
    show(
        f"Strategies: median processor time, ms/candidate; batches of {_BATCH} candidates for {_PROMPTS} prompts",
        ["strategy", "elites in the end", *(f"at {population:,}" for population in POPULATIONS), "10,000 against 100"],
        rows,
        "target: at most 0.2 ms at 10,000, flat from 100",
    )


def _cost(strategy: Strategy, view: SharedTables, rng: np.random.Generator, population: int) -> float:
    while view.batch * _BATCH < population:
        _batch(strategy, view, rng)
    return median([_batch(strategy, view, rng) for _ in range(_ROUNDS)]) * 1000 / _BATCH


def _batch(strategy: Strategy, view: SharedTables, rng: np.random.Generator) -> float:
    """Do what a batch asks of a strategy; return its processor time. Reading and granting cells is not in it."""
    for island in range(strategy.islands):
        view.elites(island)
    at = time.process_time()
    moved = strategy.maintain(view, rng)
    selections = [strategy.select(view, rng) for _ in range(_PROMPTS)]
    spent = time.process_time() - at
    batch = synthetic_batch(view.problem, 2 + view.batch * _BATCH, _BATCH, selections[0].island, rng)
    at = time.process_time()
    placed = strategy.place(view, batch)
    spent += time.process_time() - at
    view.grant(moved)
    view.grant(placed)
    view.batch += 1
    return spent
