"""Target cells: keep the candidates that meet a target, and those nearest to it, in every strategy.

Per target and island the archive holds

- the best candidates that meet it: under each objective alone, evenly, by the declared weights, and by the smallest
  distance to the best end of all ranges, which also finds a point of the front that no weighting prefers;
- while none meets it, the nearest feasible candidate by the largest shortfall of the rule's comparisons (``near``), and
  for every part of the rule the candidate that misses least of the others (``but0``, ``but1``, …): a program that is
  small enough and almost right beside one that is right and almost small enough. Violated constraints that the rule
  does not name are one more part; one whose looser comparison in the rule holds counts in every part.

A candidate without a target never displaces one that meets it. Parents are drawn from the nearest candidates of unmet
targets, or from the best ones once all targets are met.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.candidate import Individual
from speciate.domain.objective import ObjectiveRole
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.reward import rounded
from speciate.search.archive import Bid, improvements
from speciate.search.cells import DECLARED, TARGET, trade_offs, weigh
from speciate.search.strategy import EliteTable, EvolutionConfig, Placement, PopulationView, Selection, Strategy

_NEAR: Final = "near"
_BUT: Final = "but"
_MAX_CORNERS: Final = 6
"""Objectives up to which a target keeps the best candidate under each of them alone."""
_MAX_PARTS: Final = 6
"""Parts of a rule for which the candidate nearest to all others is kept."""

_LEAN: Final = 1e-3
_INFEASIBLE: Final = 1000.0


def select_parents(strategy: Strategy, view: PopulationView, rng: np.random.Generator) -> Selection:
    """Return the strategy's selection, with its first parent replaced at times by one near an unmet target."""
    selection = strategy.select(view, rng)
    config = strategy.config
    if not isinstance(config, EvolutionConfig) or selection.role is not PolicyRole.MUTATE:
        return selection
    if rng.random() >= config.toward_targets:
        return selection
    parent = _toward_target(view.problem, view.elites(selection.island), rng)
    if parent is None:
        return selection
    others, inspirations = (
        tuple(selection.parents[0] if each == parent else each for each in shown)
        for shown in (selection.parents[1:], selection.inspirations)
    )
    return Selection(selection.role, selection.island, (parent, *others), inspirations)


def place_candidates(
    strategy: Strategy, view: PopulationView, candidates: Sequence[Individual]
) -> tuple[Placement, ...]:
    """Return the strategy's bids, and the bids for the target cells of the candidates' islands."""
    # A holder with noisy rewards may be refuted while this batch is evaluated: do not compare with it.
    elites = None if view.problem.is_noisy else view.elites
    return (*strategy.place(view, candidates), *target_placements(view.problem, candidates, elites=elites))


def target_placements(
    problem: Problem,
    candidates: Sequence[Individual],
    prefix: str = TARGET,
    elites: Callable[[int], EliteTable] | None = None,
) -> tuple[Placement, ...]:
    placements: list[Placement] = []
    for island in sorted({candidate.island for candidate in candidates}):
        residents = [candidate for candidate in candidates if candidate.island == island]
        table = EliteTable.of([], len(problem.objectives)) if elites is None else elites(island)
        bids = [bid for bid in target_bids(problem, residents) if bid[0].startswith(prefix)]
        placements += improvements(table, island, bids, residents)
    return tuple(placements)


def target_bids(problem: Problem, candidates: Sequence[Individual]) -> list[Bid]:
    rewards = [candidate.vector for candidate in candidates]
    scores = _scores(problem, problem.space.normalise(rewards))
    violations = problem.space.violation(rewards).tolist()
    constraints = {o.name for o in problem.objectives if o.role is ObjectiveRole.CONSTRAINT}
    unnamed = [bool(constraints - rule.uses) for rule in problem.rules]
    bids: list[Bid] = []
    for i, target in enumerate(problem.targets):
        prefix = f"{TARGET}{target.name}/"
        for row, candidate in enumerate(candidates):
            if candidate.targets >> i & 1:
                bids += [(prefix + cell, row, float(fitness[row])) for cell, fitness in scores.items()]
            elif (missing := problem.ranking.missing(i, candidate.vector)) or violations[row] > 0:
                below, beyond = 0.0, 0.0
                if violations[row] > 0:
                    below = _INFEASIBLE + violations[row]
                    counted = {each.name for each in missing}
                    violated = problem.ranking.violations(candidate.vector)
                    beyond = sum(each.size for each in violated if each.name not in counted)
                comparable = rounded(candidate.vector).tolist()
                sizes = [each.size for each in problem.ranking.missing(i, comparable)]
                bids.append((prefix + _NEAR, row, -max(sizes, default=0.0) - _LEAN * sum(sizes) - below))
                parts = problem.rules[i].parts(comparable, problem.space.widths)
                total = sum(parts) + beyond
                parts += unnamed[i] * (beyond,)
                if len(parts) > 1:
                    rest = [total - part + _LEAN * part for part in parts[:_MAX_PARTS]]
                    bids += [(f"{prefix}{_BUT}{j}", row, -far) for j, far in enumerate(rest)]
    return bids


def _toward_target(problem: Problem, table: EliteTable, rng: np.random.Generator) -> int | None:
    """Draw a target that no elite meets, then one of its nearest candidates; None without target cells."""
    near: dict[str, set[int]] = defaultdict(set)
    met: dict[str, set[int]] = defaultdict(set)
    for cell, number in zip(table.cells, table.numbers.tolist(), strict=True):
        if cell.startswith(TARGET):
            name, _, slot = cell.removeprefix(TARGET).partition("/")
            (near if slot == _NEAR or slot.startswith(_BUT) else met)[name].add(number)
    unmet = [target.name for target in problem.targets if target.name in near and target.name not in met]
    pools, names = (near, unmet) if unmet else (met, [target.name for target in problem.targets if target.name in met])
    if not names:
        return None
    pool = sorted(pools[names[int(rng.integers(len(names)))]])
    return pool[int(rng.integers(len(pool)))]


def _scores(problem: Problem, points: FloatArray) -> dict[str, FloatArray]:
    """Return the fitness of all candidates in every cell of a met target, shape (n,) each."""
    names, weights = _weightings(points.shape[1], problem.weight_vector)
    scores = dict(zip(names, weigh(points, weights).T, strict=True))
    if points.shape[1] > 1:
        gaps = 1.0 - points
        scores["balance"] = -gaps.max(axis=1) - _LEAN * gaps.sum(axis=1)
    return scores


@lru_cache(maxsize=256)
def _weightings(k: int, declared: tuple[float, ...] | None) -> tuple[list[str], FloatArray]:
    names, weights = ["even"], [np.full(k, 1.0 / k)]
    if 1 < k <= _MAX_CORNERS:
        names += [f"w{i}" for i in range(k)]
        weights += list(trade_offs(k)[:k])
    if declared is not None:
        names.append(DECLARED)
        weights.append(np.array(declared))
    return names, np.array(weights)
