"""Which strategies unlock more: bundled problems with ``program_mutator``, held-out programs with tiny policies."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from benchmarks.evidence import MARKS, MUTATOR, Found, Job, gather
from benchmarks.parts import median, show
from experiments.svg import save_svg
from speciate.problems.loader import bundled, load_problem
from speciate.search.strategies import STRATEGIES
from speciate.settings import Settings
from speciate.tournaments.statistics.significance import mcnemar, sign_flips

FLOOR: Final = "best_of_n"
SEEDS: Final = 8
BUDGET: Final = 640
SLOW: Final = {"online-bin-packing": 4}
"""Problems with slow evaluators, by what part of the budget they get."""
LONGER: Final = 4
"""How many times as many evaluations the strategies of the main claim get for a second comparison."""
HELD_OUT: Final = range(3000, 3400)
"""Numbers of the programs in the test split; the reproduction's own are 2000 to 2399."""
MORE_HELD_OUT: Final = range(4000, 5600)
"""Those for the pairs that leave evolution the least room."""
WITHIN: Final = (90, 180)
PAIRS: Final = (
    ("programs-base", "programs-base"),
    ("programs-grpo", "programs-grpo"),
    ("programs-grpo", "programs-base"),
    ("programs-vpo", "programs-vpo"),
    ("programs-vpo", "programs-base"),
    ("programs-vector-max-at-k", "programs-vector-max-at-k"),
)
"""Who proposes, and who changes."""
TRAINED_TO_CHANGE: Final = tuple(
    (f"programs-{name}", "programs-mutator") for name in ("grpo", "multi-rlvr", "max-at-k", "vpo", "vector-max-at-k")
)
"""The same with a policy that was trained for changes alone."""
NEAR_THE_CEILING: Final = (("programs-vpo", "programs-base"), ("programs-vector-max-at-k", "programs-vector-max-at-k"))
"""Most of what can be unlocked at all their independent samples unlock, so 400 programs are too few to see the rest."""
WITH_A_MUTATOR: Final = TRAINED_TO_CHANGE[-2:]
"""The same two policies, VPO and Vector Max-at-K, with the mutator."""
AGAIN: Final = range(1, 5)
"""Seeds of further runs on the same 400 programs; those above have seed 0."""
_ARCHIVE: Final = "islands_map_elites"
SELECTIONS: Final = ("best_weighted", "random_scalarization")
"""Ways for ``islands_map_elites`` to choose parents other than ε-lexicase: by one weighting, or by a random one."""

Arm = tuple[str, str]
"""A strategy, and its options that are not the defaults, as JSON."""
_ALL: Final[tuple[Arm, ...]] = (
    *((name, "{}") for name in STRATEGIES),
    *((_ARCHIVE, json.dumps({"selection": selection})) for selection in SELECTIONS),
)
_MAIN: Final[tuple[Arm, ...]] = ((FLOOR, "{}"), (_ARCHIVE, "{}"), ("vector_evolution", "{}"))

_DRAWS: Final = 1_000_000
"""Of the sign-flip test: p can be seen down to 1e-6."""

MAZES: Final = range(3000, 3200)
MAZES_AGAIN: Final = (("maze-vpo", "maze-mutator"), ("maze-vector-max-at-k", "maze-mutator"))
MORE_MAZES: Final = range(30_000, 31_600)
"""Those for the pairs that 200 mazes, with one seed or four, did not tell apart."""
MAZES_UNDECIDED: Final = (("maze-max-at-k", "maze-mutator"), *MAZES_AGAIN)
CHANGED_BY_THE_BASE: Final = (
    (("maze-vpo", "maze-base"), MORE_MAZES),
    (("maze-vector-max-at-k", "maze-base"), range(30_000, 34_800)),
    (("maze-vpo", "maze-base"), range(31_600, 38_000)),
)
"""The same two policies, changed by the base, which learnt changes by supervision alone."""
MAZE_PAIRS: Final = (
    *((f"maze-{name}", "maze-mutator") for name in ("base", "grpo", "multi-rlvr", "max-at-k")),
    *((name, mutator) for name, _ in MAZES_AGAIN for mutator in ("maze-base", "maze-mutator")),
)
WITHIN_MAZES: Final = (30, 90)

_Cell = tuple[tuple[str, str], tuple[str, ...], range]
"""Who proposes and who changes, strategies, and numbers of the problems."""
_LATER: Final = (
    (TRAINED_TO_CHANGE, HELD_OUT),
    (NEAR_THE_CEILING, MORE_HELD_OUT),
    (WITH_A_MUTATOR, MORE_HELD_OUT[:400]),
)
"""Pairs for which the strategies of the main claim are compared with their floor alone."""


def programs(_: Settings, keep: Path, workers: int) -> None:
    """Count the held-out programs that every strategy unlocks, and test it against independent samples."""
    plan = [(pair, tuple(STRATEGIES), HELD_OUT) for pair in PAIRS]
    main = tuple(name for name, _ in _MAIN)
    plan += [(pair, main, numbers) for pairs, numbers in _LATER for pair in pairs]
    found = _show_unlocked("programs", plan, WITHIN, keep, workers)
    named = {f"programs:{number}" for number in HELD_OUT}
    solved = {job.problem for job, runs in found.items() if job.problem in named and runs.reached[0] is not None}
    show("The ceiling", ["programs", "unlocked by any of these runs"], [[len(HELD_OUT), len(solved)]])


def again(_: Settings, keep: Path, workers: int) -> None:
    """Repeat runs near the ceiling with other seeds, both sides, and test all seeds together: programs, then mazes.

    Two tests, since the seeds of one problem, and the targets of one maze, depend on each other: McNemar's with every
    (target, seed) as a pair, and the sign-flip test on the problems' mean differences.
    """
    main, for_mazes = tuple(name for name, _ in _MAIN), (FLOOR, "vector_evolution")
    _show_again("programs", [(pair, main, HELD_OUT) for pair in WITH_A_MUTATOR], AGAIN, WITHIN, keep, workers)
    _show_again("maze", [(pair, for_mazes, MAZES) for pair in MAZES_AGAIN], AGAIN, WITHIN_MAZES, keep, workers)
    _show_again("maze", [(pair, for_mazes, MORE_MAZES) for pair in MAZES_UNDECIDED], (0,), WITHIN_MAZES, keep, workers)
    by_the_base = [(pair, (FLOOR, _ARCHIVE), numbers) for pair, numbers in CHANGED_BY_THE_BASE]
    _show_again("maze", by_the_base, (0,), WITHIN_MAZES, keep, workers)


def _show_again(
    task: str, plan: Sequence[_Cell], seeds: Sequence[int], within: Sequence[int], keep: Path, workers: int
) -> None:
    of = {
        (pair, name): [[_job(task, n, pair, name, within, seed) for seed in seeds] for n in numbers]
        for pair, names, numbers in plan
        for name in names
    }
    jobs = [job for cell in of.values() for of_problem in cell for job in of_problem]
    found = dict(zip(jobs, gather(jobs, keep, workers, f"{task}, again"), strict=True))
    for pair, names, numbers in plan:
        # (problems, seeds, targets)
        reached = {name: np.array([[_at(found[job]) for job in row] for row in of[pair, name]]) for name in names}
        rows = []
        for name, at in reached.items():
            row = [name]
            for most in within:
                each = ", ".join(str(count) for count in (at <= most).sum(axis=(0, 2)))
                row += [each, *(("", "") if name == FLOOR else _versus(at <= most, reached[FLOOR] <= most))]
            rows.append(row)
        columns = [c for most in within for c in (f"within {most}, each seed", "it : floor alone", "by problems")]
        targets = len(numbers) * reached[FLOOR].shape[2]
        title = f"{pair[0]} proposes, {pair[1]} changes: of {targets} targets, seeds {', '.join(map(str, seeds))}"
        show(title, ["strategy", *columns], rows, f"by problems: sign-flip test, {_DRAWS:,} draws")


def _versus(mine: NDArray[np.bool_], floor: NDArray[np.bool_]) -> tuple[str, str]:
    """Return both tests of runs against their floor in words; each of shape (problems, seeds, targets)."""
    pairs = mcnemar(mine, floor)
    rates = mine.mean(axis=(1, 2)) - floor.mean(axis=(1, 2))
    (problems,) = sign_flips([rates], np.random.default_rng(0), _DRAWS)
    better, worse = int((rates > 0).sum()), int((rates < 0).sum())
    return (
        f"{pairs.only_a} : {pairs.only_b}, p = {pairs.p_value:.1g}",
        f"{better} : {worse}, p = {problems.p_value:.1g}",
    )


def mazes(_: Settings, keep: Path, workers: int) -> None:
    """Count the targets of held-out mazes that evolution meets with one mutator and another."""
    plan = [(pair, (FLOOR, "vector_evolution"), MAZES) for pair in MAZE_PAIRS]
    _show_unlocked("maze", plan, WITHIN_MAZES, keep, workers)


def _show_unlocked(
    task: str, plan: Sequence[_Cell], within: Sequence[int], keep: Path, workers: int
) -> dict[Job, Found]:
    """Make the runs of a plan and print a table for each pair; every target of a problem counts."""
    jobs = [_job(task, n, pair, name, within) for pair, names, numbers in plan for name in names for n in numbers]
    jobs = list(dict.fromkeys(jobs))
    found = dict(zip(jobs, gather(jobs, keep, workers, task), strict=True))
    for pair, names, numbers in plan:
        of = {name: [found[_job(task, n, pair, name, within)] for n in numbers] for name in names}
        reached = {name: np.array([_at(run) for run in runs]).ravel() for name, runs in of.items()}
        rows = []
        for name, at in reached.items():
            row: list[object] = [name]
            for most in within:
                test = mcnemar(at <= most, reached[FLOOR] <= most)
                versus = "" if name == FLOOR else f"{test.only_a} : {test.only_b}, p = {test.p_value:.1g}"
                row += [int((at <= most).sum()), versus]
            rows.append(row)
        columns = [column for most in within for column in (f"within {most}", f"it alone : {FLOOR} alone")]
        targets = len(reached[FLOOR])
        show(f"{pair[0]} proposes, {pair[1]} changes: of {targets} targets", ["strategy", *columns], rows)
    return found


def problems(_: Settings, keep: Path, workers: int) -> None:
    """Compare the strategies on the bundled problems: targets, and coverage of the trade-offs, against evaluations."""
    for arms, budget, picture in ((_ALL, BUDGET, "search-targets"), (_MAIN, LONGER * BUDGET, "search-longer")):
        jobs = {
            (arm, name, seed): Job(name, MUTATOR, MUTATOR, arm[0], budget // SLOW.get(name, 1), seed, arm[1])
            for seed in range(SEEDS)
            for name in bundled()
            for arm in arms
        }
        runs = dict(zip(jobs, gather(list(jobs.values()), keep, workers, f"{budget} evaluations"), strict=True))
        by_arm = {arm: {name: [runs[arm, name, s] for s in range(SEEDS)] for name in bundled()} for arm in arms}
        _show_targets(by_arm, budget)
        _show_coverage(by_arm)
        _draw(by_arm, budget, Path(f"docs/evidence/pictures/{picture}.svg"))


def _job(task: str, number: int, pair: tuple[str, str], strategy: str, within: Sequence[int], seed: int = 0) -> Job:
    # Independent samples change no parent, so they do not depend on the mutator.
    proposer, mutator = pair if strategy != FLOOR else (pair[0], pair[0])
    return Job(f"{task}:{number}", proposer, mutator, strategy, max(within), seed)


def _at(found: Found) -> list[float]:
    """Return the evaluations that met the targets; infinite where none did."""
    return [float("inf") if at is None else float(at) for at in found.reached]


def _label(arm: Arm) -> str:
    options = json.loads(arm[1])
    return ", ".join([arm[0], *(f"{key} {value}" for key, value in options.items())])


def _reached(
    runs: Mapping[str, Sequence[Found]], seeds: Sequence[int], budget: int, shares: Sequence[float]
) -> NDArray[np.float64]:
    """Return the share of all (problem, target, seed) reached within each share of the budget."""
    costs = [
        math.inf if at is None else at * SLOW.get(problem, 1) / budget
        for problem, of_problem in runs.items()
        for seed in seeds
        for at in of_problem[seed].reached
    ]
    return np.asarray((np.asarray(costs)[:, None] <= np.asarray(shares)).mean(axis=0))


def _show_targets(by_arm: Mapping[Arm, Mapping[str, Sequence[Found]]], budget: int) -> None:
    shares = (0.125, 0.25, 0.5, 1.0)
    rows = []
    for arm, runs in by_arm.items():
        ends = [float(_reached(runs, [seed], budget, [1.0])[0]) for seed in range(SEEDS)]
        reached = _reached(runs, range(SEEDS), budget, shares).tolist()
        rows.append([_label(arm), *reached, f"{min(ends):.2f} to {max(ends):.2f}"])
    pairs = sum(len(load_problem(path).targets) for path in bundled().values())
    show(
        f"Bundled problems, {MUTATOR}, {SEEDS} seeds: share of {pairs} targets reached",
        ["strategy", *(f"at {share:.3g} of the budget" for share in shares), "single seeds"],
        rows,
        f"budget: {budget} evaluations; {', '.join(f'{name} {budget // part}' for name, part in SLOW.items())}",
    )


def _show_coverage(by_arm: Mapping[Arm, Mapping[str, Sequence[Found]]]) -> None:
    rows = []
    for arm, runs in by_arm.items():
        row: list[object] = [_label(arm)]
        for problem, of_problem in runs.items():
            mine, floor = (
                [found.coverage[-1] for found in runs] for runs in (of_problem, by_arm[FLOOR, "{}"][problem])
            )
            better = "" if arm[0] == FLOOR else f" ({_chance(mine, floor)})"
            row.append(f"{median(mine):.4f}{better}")
        rows.append(row)
    show(
        "The same runs: E_w of the best wᵀr at the end, median of seeds (chance of a better run than best_of_n, p)",
        ["strategy", *bundled()],
        rows,
        "Mann–Whitney, two-sided, exact where there are no ties",
    )


def _chance(mine: Sequence[float], floor: Sequence[float]) -> str:
    if len({*mine, *floor}) == 1:
        return "0.50"
    test = mannwhitneyu(mine, floor)
    return f"{test.statistic / (len(mine) * len(floor)):.2f}, {test.pvalue:.1g}"


def _draw(by_arm: Mapping[Arm, Mapping[str, Sequence[Found]]], budget: int, path: Path) -> None:
    """Draw targets and coverage against the budget; intervals are those of resampled seeds."""
    from matplotlib.figure import Figure

    rng = np.random.default_rng(0)
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = np.linspace(0, 1, 201)
    marks = np.linspace(1 / MARKS, 1, MARKS)
    for arm, runs in by_arm.items():
        if arm[1] != "{}":
            continue
        ends = np.array([_reached(runs, [seed], budget, grid.tolist()) for seed in range(SEEDS)])
        drawn = ends[rng.integers(SEEDS, size=(1000, SEEDS))].mean(axis=1)
        (line,) = left.plot(grid, ends.mean(axis=0), label=arm[0])
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        left.fill_between(grid, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        covered = np.array([[found.coverage for found in of_problem] for of_problem in runs.values()])
        right.plot(marks, covered.mean(axis=(0, 1)), color=line.get_color())
    left.set(xlabel="share of the budget", ylabel="share of targets reached", ylim=(0, None))
    right.set(xlabel="share of the budget", ylabel="E_w of the best wᵀr, mean of problems")
    left.legend(frameon=False, fontsize=8)
    save_svg(figure, path)
