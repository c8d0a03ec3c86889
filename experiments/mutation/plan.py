"""The declared runs (docs/evidence/mutation.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from experiments.declared_runs import DeclaredRun
from speciate.problems.loader import bundled, load_problem

SERVED: Final = "smollm2-135m"
MODEL: Final = "smollm2-192"
"""Policy of the served model with at most 192 tokens a completion."""
MUTATOR: Final = "program-mutator"
PROBLEMS: Final = ("circle-packing-26", "relativistic-energy")
ARMS: Final[dict[str, tuple[str, ...]]] = {"model": (MODEL,), "edits": (MUTATOR,), "both": (MODEL, MUTATOR)}
"""Policies by arm; ``both`` is an ensemble whose weights UCB learns."""
EVALUATIONS: Final = 64
MAX_TOKENS: Final = 192
BATCH: Final = 16
SEEDS: Final = 3


def declared_runs() -> Iterator[DeclaredRun]:
    """Yield the runs: seeds outermost, so that an interrupted comparison has whole seeds; arms innermost."""
    for seed in range(SEEDS):
        for slug in PROBLEMS:
            problem = load_problem(bundled()[slug])
            for arm, policies in ARMS.items():
                choice = {"policy_choice": "ucb"} if len(policies) > 1 else {}
                spec = {"budget": EVALUATIONS, "strategy": "islands_map_elites", "lanes": 1, "batch": BATCH, **choice}
                yield DeclaredRun(f"mutation/{slug}/{arm}/{seed}/batch={BATCH}", arm, problem, policies, seed, spec)
