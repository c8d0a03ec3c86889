"""Search on noisy evaluations: what is known of a program, which one to evaluate again, and an archive by bounds.

Trial k of program p measures μ_p + β_k + ε, for each objective: the mean of the program, the effect of the seed, which
all programs share (common random numbers), and noise. β and ε are normal; their variances follow from all programs with
several trials (REML by EM: Dempster, Laird and Rubin 1977; Searle, Casella and McCulloch, "Variance Components", 1992,
section 8.3), and β is predicted (BLUP), so that a program with many trials compares fairly with one that had the first
seed only. An evaluator that ignores its seed has β near 0. A value far from the others of its program counts as less
far (Winsorising: Huber 1981, "Robust Statistics", section 1.7), since a machine may stall.

A program ranks by its bound: the mean, one standard error towards the worse side. An elite is evaluated again if that
raises the expected value of the best program by more than a new program usually did in this run (``again``). Without
noise the bounds are the values, and nothing is repeated.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.candidate import Failure, Individual
from speciate.domain.objective import ObjectiveRole
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.reward import RewardSpace
from speciate.domain.target import BETTER, TargetSet
from speciate.search.archive import best_per_cell
from speciate.search.cells import is_clocked, trade_offs
from speciate.search.strategy import EliteTable, Placement, PopulationView, Selection, Strategy
from speciate.search.targets import place_candidates, target_placements

SEED_TRIALS: Final = 3
"""Trials of the seed program at the start of a run, from which the noise is first known."""
LEAST_BUDGET: Final = 12
"""Budget of evaluations below which the seed program has one trial."""

_DEVIATIONS: Final = 1.0
"""Standard errors between a mean and its bound."""
_SHARE: Final = 0.5
"""Most of a run's requests that repeat evaluations."""
_PRIOR: Final = 4.0
"""Degrees of freedom of the common variance, in the variance of one program."""
_ROUNDS: Final = 30
_FAR: Final = 4.0
_NO_LATE_BATCH: Final = 1 << 60
"""Batch of elites that bid again: none of them is too late for a population that was reset."""


class Trial(NamedTuple):
    program: int
    """Number of the candidate that had the program first."""
    trial: int | None
    """Position among the trials of the program, which all share their seed; None for a seed of its own."""
    rewards: Sequence[float] | None
    """Raw rewards, shape (d,); None after a failure that the program caused."""


def trial_of(program: int, trial: int, rewards: Sequence[float] | None, failure: Failure | None) -> Trial | None:
    """Return the trial in a candidate, or None if the evaluator or the machine failed, not the program."""
    if rewards is None and (failure is None or failure.repeatable):
        return None
    return Trial(program, trial if trial >= 0 else None, rewards)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of the rewards of a program."""

    mean: tuple[float, ...]
    """Raw rewards, shape (d,)."""
    error: tuple[float, ...]
    """Their standard errors, shape (d,); 0 for an objective without noise."""
    evaluations: int


def estimates(problem: Problem, trials: Sequence[Trial]) -> dict[int, Estimate]:
    """Return what is known of every program.

    A program that failed in a trial is missing: it is not reliable, and so no elite.
    """
    failed = {each.program for each in trials if each.rewards is None}
    trials = [each for each in trials if each.program not in failed]
    if not trials:
        return {}
    numbers, rows = np.unique([each.program for each in trials], return_inverse=True)
    seeds = np.array([-1 if each.trial is None else each.trial for each in trials])
    rewards = np.array([each.rewards for each in trials], dtype=np.float64)
    counts = np.bincount(rows)
    kinds = zip(rewards.T, problem.objectives, problem.noisy, strict=True)
    columns = [_fitted(x, rows, seeds, 1.0 if each.maximized else -1.0, noisy=noisy) for x, each, noisy in kinds]
    means, errors = (np.stack(both, axis=1).tolist() for both in zip(*columns, strict=True))
    known = zip(numbers.tolist(), means, errors, counts.tolist(), strict=True)
    return {number: Estimate(tuple(mean), tuple(error), count) for number, mean, error, count in known}


def _fitted(x: FloatArray, rows: IntArray, seeds: IntArray, up: float, *, noisy: bool) -> tuple[FloatArray, FloatArray]:
    """Return the mean of every program and its standard error, from values of shape (N,) of one objective.

    ``up`` is 1 if higher values are better, -1 if lower ones are. No mean lies outside the values.
    """
    counts = np.bincount(rows)

    def means(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(rows, values) / counts)

    x = _without_outliers(np.clip(x, -1e300, 1e300), rows, counts)  # sums stay finite
    within = x - means(x)[rows]
    freedom = len(x) - len(counts)
    if not noisy or freedom == 0 or not within.any():
        return means(x), np.zeros(len(counts))
    scale = np.ldexp(1.0, np.frexp(np.abs(within).max())[1])  # squares stay finite and above 0; no digit is lost
    within /= scale
    shared = np.unique(seeds[seeds >= 0])
    effects = (seeds[:, None] == shared).astype(np.float64)  # shape (N, K)
    shares = np.stack([means(effect) for effect in effects.T], axis=1)  # of each seed in the trials of every program
    inside = effects - shares[rows]
    # What only one program shows is no effect of the seed: it varies more than the others, or a machine stalled.
    spread = np.sort(np.sqrt(means(within**2))[counts > 1])
    most = _FAR * spread[(len(spread) - 1) // 2] * (len(spread) > 1)
    design, seen = inside.T @ inside, inside.T @ np.clip(within, -most, most)
    noise = between = float(within @ within) / freedom
    for _ in range(_ROUNDS):
        covariance = np.linalg.inv(design / noise + np.eye(len(shared)) / between)
        effect = covariance @ seen / noise
        rest = within - inside @ effect
        between = max(float((effect**2 + covariance.diagonal()).mean()), 1e-9 * noise)
        noise = max((float(rest @ rest) + float((design * covariance).sum())) / freedom, 1e-12 * float(within @ within))
    own = np.bincount(rows, rest**2)
    variance = (_PRIOR * noise + own) / (_PRIOR + counts - 1)
    # Programs with the same seeds share one correction, which keeps their order and makes none better than all values.
    mean, values, (_, alike) = up * means(x), up * x, np.unique(shares, axis=0, return_inverse=True)
    room = np.full(len(mean), np.inf)
    np.minimum.at(room, alike, values.max() - mean)
    mean = np.maximum(mean + np.minimum(-up * scale * (shares @ effect), room[alike]), values.min())
    return up * mean, scale * np.sqrt(variance / counts)


def _without_outliers(x: FloatArray, rows: IntArray, counts: IntArray) -> FloatArray:
    """Move values to within ``_FAR`` robust standard deviations of the median of their program."""
    several = counts[rows] > 2
    if not several.any():
        return x
    medians = np.array([np.median(x[rows == row]) for row in range(len(counts))])[rows]
    scale = 1.4826 * float(np.median(np.abs(x - medians)[several]))  # the standard deviation of normal noise
    return x if scale == 0 else medians + np.clip(x - medians, -_FAR * scale, _FAR * scale)


def bounded(problem: Problem, mean: Sequence[float], error: Sequence[float], side: float = -1.0) -> tuple[float, ...]:
    """Return the bound of raw rewards on the worse side (or the better one, with ``side`` = 1), shape (d,).

    Constraints and records have their means: a program on the limit of a constraint would never count as feasible.
    """
    ups = [(1.0 if o.maximized else -1.0) if o.role is ObjectiveRole.OBJECTIVE else 0.0 for o in problem.objectives]
    return tuple(value + side * up * _DEVIATIONS * e for value, up, e in zip(mean, ups, error, strict=True))


def again(
    strategy: Strategy, view: PopulationView, rng: np.random.Generator, undecided: TargetSet = 0
) -> Selection | None:
    """Return the elite to evaluate again, or None if a new program is worth more; ``rng`` draws three numbers.

    An elite with few trials comes first if its mean meets one of the ``undecided`` targets, but its bound does not.

    The archive holds the bounds of ``revise``. Programs are compared under the declared weights. Without any, even ones
    and trade-offs take turns, since a specialist matters as much as the best on the whole.
    """
    if not view.problem.is_noisy:
        return None
    place, chance, kind = rng.random(3)
    island = int(place * strategy.islands)
    for i in range(strategy.islands if undecided else 0):
        living = strategy.living(view.elites(i))
        elites = zip(living.numbers, living.rewards, living.errors, living.evaluations, strict=True)
        for number, bound, error, trials in elites:
            met, sure = (view.problem.targets_met(bounded(view.problem, bound, error, side)) for side in (1.0, 0.0))
            if trials < SEED_TRIALS and met & ~sure & undecided:
                return Selection(PolicyRole.REPEAT, i, (int(number),))
    table = strategy.living(view.elites(island))
    numbers, rows = np.unique(table.numbers, return_index=True)
    if chance >= _SHARE or not table.errors.any() or len(numbers) == 1:
        return None
    space = view.problem.space.widened(table.rewards)
    weights = np.array(view.problem.weight_vector or np.full(len(space.selected), 1 / len(space.selected)))
    if view.problem.weights is None and kind < 0.5:
        lattice = trade_offs(len(space.selected))
        weights = lattice[int(2 * kind * len(lattice))]
    bounds, errors = table.rewards[rows], table.errors[rows]
    means = [bounded(view.problem, *each, side=1.0) for each in zip(bounds.tolist(), errors.tolist(), strict=True)]
    columns = [space.objectives.index(objective) for objective in space.selected]
    deviations = np.sqrt(((errors / np.array(space.widths))[:, columns] ** 2 * weights**2).sum(axis=1))
    values, worst = space.normalise(np.array(means)) @ weights, space.normalise(bounds) @ weights
    gains = knowledge_gradient(values, deviations / np.sqrt(table.evaluations[rows] + 1))
    start = bounds[worst.argmin()] if view.seed_rewards is None else np.array(view.seed_rewards)
    # Leaving an infeasible region is one large step, and tells nothing about steps inside.
    if not space.violation(bounds).all():
        space, start = RewardSpace(space.selected), start[columns]
    begun = (space.normalise(start[None]) @ weights).item()
    latest = view.latest()
    # What was not noticed yet may be as large as the error of the leader.
    gained = max(float(worst.max()) - begun, 0.0) + float(deviations[worst.argmax()])
    usual = gained / max(latest[0].number if latest else 1, 1)
    best = int(gains.argmax())
    return Selection(PolicyRole.REPEAT, island, (int(numbers[best]),)) if gains[best] > usual else None


def knowledge_gradient(means: FloatArray, steps: FloatArray) -> FloatArray:
    """Return by how much another evaluation of each program raises the expected value of the best one, shape (n,).

    At least two programs have ``means``, higher is better; another evaluation moves each by a standard deviation
    ``steps``. Frazier, Powell and Dayanik 2008, "A knowledge-gradient policy for sequential information collection",
    section 3.
    """
    from scipy.special import ndtr  # imported here: every process loads this module, and few runs are noisy

    order = np.argsort(means)
    rivals = np.full(len(means), means[order[-1]])
    rivals[order[-1]] = means[order[-2]]
    steps = np.maximum(steps, 1e-300)
    z = -np.abs(means - rivals) / steps
    return np.asarray(steps * (z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)))


@dataclass(frozen=True, slots=True)
class Revision:
    """The archive of a problem with noise after an evaluated batch."""

    archive: tuple[Placement, ...]
    """Holders of all cells, by island and cell; their rewards are bounds."""
    estimates: Mapping[int, Estimate]
    """What is known of all programs in the archive, and of the best before."""
    individuals: tuple[Individual, ...]
    """Those programs, by number. Their rewards are bounds, and their targets those that the bounds meet."""

    def changes(self, before: Iterable[Placement]) -> tuple[Placement, ...]:
        """Return the cells that have another holder than before."""
        holders = {(each.island, each.cell): each.number for each in before}
        return tuple(each for each in self.archive if holders.get((each.island, each.cell)) != each.number)


def revise(
    problem: Problem,
    strategy: Strategy,
    population: Callable[[int, Mapping[int, EliteTable]], PopulationView],
    batch: int,
    archive: Sequence[Placement],
    members: Mapping[int, Individual],
    trials: Sequence[Trial],
    newcomers: Sequence[int],
    repeated: Sequence[int],
    meeting: Sequence[int] = (),
) -> Revision:
    """Let all elites and the new programs of a batch bid for all cells, by what is known of them now.

    Args:
        problem: Problem of the run.
        strategy: Its strategy.
        population: Its population as a batch sees it, with the given archives of its islands.
        batch: Ordinal of the batch.
        archive: Holders of all cells before.
        members: Candidates by number: all holders, the best before, newcomers and repeated ones.
        trials: All trials of these programs, and of others that were evaluated several times, by number; the rest is
            ignored.
        newcomers: Numbers of the batch's new programs with rewards.
        repeated: Numbers of the programs that the batch evaluated again; they may have left the archive.
        meeting: Numbers of programs that bid for target cells only; they may have left the archive.
    """
    counts = Counter(each.program for each in trials)
    known = estimates(problem, [each for each in trials if each.program in members or counts[each.program] > 1])
    # An unlucky first trial may have stopped a program that others measured to the end.
    last, worst = [problem.objectives.index(each) for each in problem.cascade[-1].objectives], problem.padded({})
    whole = {each.program for each in trials if each.rewards and any(each.rewards[i] != worst[i] for i in last)}
    individuals = {
        number: _bound(problem, replace(member, stopped_at=None) if number in whole else member, known[number])
        for number, member in members.items()
        if number in known
    }
    standing = [
        replace(each, rewards=individuals[each.number].vector, **_of(known[each.number]))
        for each in archive
        if each.number in individuals
    ]
    tables = {}
    for island in range(strategy.islands):
        elites = [each for each in standing if each.island == island]
        tables[island] = replace(EliteTable.of(elites, len(problem.objectives)), revised=True)
    new = [individuals[number] for number in newcomers if number in individuals]
    living = {island: strategy.living(table) for island, table in tables.items()}
    competing = [
        replace(individuals[number], island=island)
        for island, table in living.items()
        for number in sorted({*table.numbers.tolist()})
    ]
    competing += [individuals[number] for number in repeated if number in individuals]
    elder = place_candidates(strategy, population(_NO_LATE_BATCH, tables), competing) if competing else ()
    elder += target_placements(problem, [individuals[number] for number in meeting if number in individuals])
    younger = place_candidates(strategy, population(batch, tables), new) if new else ()
    bids = best_per_cell([*(each for each in elder if not is_clocked(each.cell)), *younger])
    alive = {(island, cell) for island, table in living.items() for cell in table.cells if not is_clocked(cell)}
    cells = {(each.island, each.cell): each for each in standing if (each.island, each.cell) not in alive}
    cells |= {(each.island, each.cell): each for each in bids}
    holders = tuple(replace(cells[key], **_of(known[cells[key].number])) for key in sorted(cells))
    return Revision(holders, known, tuple(individuals[number] for number in sorted(individuals)))


def _of(known: Estimate) -> dict[str, Any]:
    return {"error": known.error, "evaluations": known.evaluations}


def _bound(problem: Problem, member: Individual, known: Estimate) -> Individual:
    bound = bounded(problem, known.mean, known.error)
    met = problem.targets_met(bound, stopped_at=member.stopped_at) & ~member.refuted
    if member.role is PolicyRole.SEED:  # by chance better than itself
        met &= ~sum(1 << i for i, target in enumerate(problem.targets) if target.name == BETTER)
    return replace(member, rewards=bound, targets=met, **_of(known))
