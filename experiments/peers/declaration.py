"""Entrants, problems, seeds and budgets of the comparison, declared before the first run."""

from __future__ import annotations

from typing import Any, Final

from experiments.arena.problems import DEVELOPMENT, HELD_OUT
from speciate.domain.tournament import Metric, Tournament

PROBLEMS: Final = (*HELD_OUT, *DEVELOPMENT)
"""Those that Speciate's default was not developed on first."""
SEEDS: Final = tuple(range(501, 509))
EVALUATIONS: Final = (60, 240)
"""Budgets of a run: evaluations, the seed program's included."""

OURS: Final = "speciate"
MODEL: Final = "model"
"""Name of the policy that all entrants ask."""
SEARCHES: Final = {OURS: "adaptive_evolution", "vector-evolution": "vector_evolution"}
ENGINES: Final = ("openevolve", "shinka-evolve", "gepa", "independent-sampling", "sequential-sampling")


def tournament(evaluations: int, problems: int, seeds: int) -> Tournament:
    """Return the declaration for a budget, with the first ``problems`` and ``seeds``."""
    common: dict[str, Any] = {"policy": MODEL, "batch": 2, "samples_per_prompt": 1}
    entrants = [{"name": name, "strategy": strategy, **common} for name, strategy in SEARCHES.items()]
    entrants += [{"name": name, "engine": name, **common} for name in ENGINES]
    entrants.append({"name": f"{OURS}-null", "duplicate_of": OURS})
    return Tournament.model_validate({
        "slug": f"peers-{evaluations}-{problems}x{seeds}",
        "problems": PROBLEMS[:problems],
        "entrants": entrants,
        "baseline": OURS,
        "seeds": SEEDS[:seeds],
        "budget": {"evaluations": evaluations},
        "metric": Metric.BEST_SCORE,
    })  # fmt: skip
