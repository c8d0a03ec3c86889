"""Placing candidates: which cells freshly evaluated candidates would improve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from speciate.search.cells import feature_cell, trade_off_cell, trade_offs, weights_of
from speciate.search.strategy import EliteTable, Evaluated, Placement, PopulationView


def improvements(
    view: PopulationView, candidates: Sequence[Evaluated], features: tuple[str, ...] = ()
) -> tuple[Placement, ...]:
    """Return the placements that improve on the archive, the best candidate for each cell.

    Args:
        view: The population.
        candidates: Freshly evaluated candidates, of any islands.
        features: Features of the feature cells; none for an archive of trade-offs only.
    """
    placements: list[Placement] = []
    for island in sorted({candidate.island for candidate in candidates}):
        mine = [candidate for candidate in candidates if candidate.island == island]
        placements.extend(_on_island(view, island, mine, features))
    return tuple(placements)


def _on_island(
    view: PopulationView, island: int, candidates: Sequence[Evaluated], features: tuple[str, ...]
) -> list[Placement]:
    points = view.problem.space.normalise([candidate.rewards for candidate in candidates])
    held = held_fitness(view.elites(island))
    scores = points @ trade_offs(points.shape[1]).T
    best: dict[str, tuple[float, Evaluated]] = {}
    for cell, column in enumerate(scores.T):
        winner = int(np.argmax(column))
        best[trade_off_cell(cell)] = (float(column[winner]), candidates[winner])
    if features:
        own = points @ weights_of(view.problem, view.seed, island)
        for candidate, fitness in zip(candidates, own.tolist(), strict=True):
            cell_name = feature_cell(features, candidate.program)
            if cell_name not in best or fitness > best[cell_name][0]:
                best[cell_name] = (fitness, candidate)
    return [
        Placement(candidate.number, island, cell, fitness, candidate.rewards)
        for cell, (fitness, candidate) in best.items()
        if fitness > held.get(cell, -np.inf)
    ]


def held_fitness(table: EliteTable) -> dict[str, float]:
    """Return what each occupied cell ranks its holder at."""
    return dict(zip(table.cells, table.fitness.tolist(), strict=True))
