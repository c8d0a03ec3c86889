"""Benchmark adaptive against fixed allocation: problems unlocked in simulated worlds unknown to the rule.

A world is, for every problem, the evaluations at which it reaches its targets, the last of which unlocks it. The rule
is that of the service; ``by evaluations`` is the same without what other targets tell, ``at random`` any unsolved one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.parts import show
from speciate.search.allocation import Slice, adaptive
from speciate.settings import Settings

PROBLEMS, WORLDS, SIZE, PARALLEL = 40, 40, 32, 4
BUDGETS = (100, 400)
"""Evaluations for each problem."""

World = list[list[float]]
NEVER = float("inf")


def run(settings: Settings) -> None:
    """Run the simulation."""
    rows = []
    for name, make in KINDS.items():
        for each in BUDGETS:
            budget = each * PROBLEMS
            worlds = [make(np.random.default_rng([seed, each])) for seed in range(WORLDS)]
            fixed = np.array([_fixed(world, budget) for world in worlds])
            found = {
                "rule": np.array([_adaptive(world, budget, i) for i, world in enumerate(worlds)]),
                "by evaluations": np.array(
                    [_adaptive([w[-1:] for w in world], budget, i) for i, world in enumerate(worlds)]
                ),
                "at random": np.array(
                    [_at_random(world, budget, np.random.default_rng(i)) for i, world in enumerate(worlds)]
                ),
            }
            gain = found["rule"] - fixed
            error = 1.96 * gain.std(ddof=1) / np.sqrt(WORLDS)
            rows.append(
                (name, each, fixed.mean(), *(f.mean() for f in found.values()), f"{gain.mean():+.1f} ± {error:.1f}")
            )
    show(
        f"Campaigns: problems unlocked of {PROBLEMS}, mean of {WORLDS} worlds, slices of {SIZE}, {PARALLEL} at once",
        ["world", "evaluations a problem", "fixed", "adaptive", "by evaluations", "at random", "adaptive − fixed"],
        rows,
        "± is a 95 % interval over worlds",
    )


def _reached(chances: Sequence[float], rng: np.random.Generator) -> list[float]:
    """Return the evaluations at which successive targets are reached, each with its own chance."""
    gaps = [float(rng.geometric(chance)) if chance > 1e-9 else NEVER for chance in chances]
    return list(np.cumsum(gaps))


def _one_target(rng: np.random.Generator) -> World:
    """Chances from Beta(0.3, 30); three problems in ten cannot be solved."""
    return [_reached([0.0 if rng.random() < 0.3 else rng.beta(0.3, 30)], rng) for _ in range(PROBLEMS)]


def _three_steps(rng: np.random.Generator) -> World:
    """Three targets, one after the other, of one chance from Beta(0.5, 10); three in ten cannot be finished."""
    worlds = []
    for _ in range(PROBLEMS):
        chances = [rng.beta(0.5, 10)] * 3
        if rng.random() < 0.3:
            chances[int(rng.integers(3))] = 0.0
        worlds.append(_reached(chances, rng))
    return worlds


def _harder_and_harder(rng: np.random.Generator) -> World:
    """Three targets with chances of their own, each a third of the one before; three in ten cannot be finished."""
    return [
        _reached([rng.beta(0.5, 5), rng.beta(0.5, 5) / 3, 0.0 if rng.random() < 0.3 else rng.beta(0.5, 5) / 9], rng)
        for _ in range(PROBLEMS)
    ]


def _misleading(rng: np.random.Generator) -> World:
    """Three targets that have nothing to do with the unlock, which is as with one target."""
    sides = [sorted(_reached([rng.beta(0.5, 10)], rng)[0] for _ in range(3)) for _ in range(PROBLEMS)]
    return [[*side, unlock[0]] for side, unlock in zip(sides, _one_target(rng), strict=True)]


KINDS: dict[str, Callable[[np.random.Generator], World]] = {
    "one target": _one_target,
    "three steps": _three_steps,
    "harder and harder": _harder_and_harder,
    "misleading targets": _misleading,
}


def _fixed(world: World, budget: int) -> int:
    return sum(targets[-1] <= budget // len(world) for targets in world)


def _adaptive(world: World, budget: int, seed: int) -> int:
    history: list[Slice] = []
    spent = [0] * len(world)
    while True:
        decision = adaptive(history, problems=len(world), evaluations=budget, size=SIZE, parallel=PARALLEL, seed=seed)
        if decision is not None:
            history.append(Slice(decision.problem, decision.evaluations))
            continue
        i = next((i for i, each in enumerate(history) if each.spent is None), None)
        if i is None:
            return sum(each.closed for each in history)
        problem, targets = history[i].problem, world[history[i].problem]
        used = int(min(history[i].evaluations, targets[-1] - spent[problem]))
        spent[problem] += used
        latest = max([at for at in targets if at <= spent[problem]], default=0)
        closed = spent[problem] == targets[-1]
        history[i] = Slice(problem, history[i].evaluations, used, int(spent[problem] - latest), closed)


def _at_random(world: World, budget: int, rng: np.random.Generator) -> int:
    spent, open_ones, left = [0.0] * len(world), list(range(len(world))), float(budget)
    while left > 0 and open_ones:
        problem = int(rng.choice(open_ones))
        used = min(SIZE, left, world[problem][-1] - spent[problem])
        spent[problem] += used
        left -= used
        if spent[problem] == world[problem][-1]:
            open_ones.remove(problem)
    return len(world) - len(open_ones)
