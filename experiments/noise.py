"""Does it pay to know the noise? Searches that repeat evaluations beside searches that keep the maximum.

``python -m experiments.noise`` makes the declared searches (an hour on 2 cores; it goes on where it stopped) and writes
``docs/evidence/noise.md``; ``--development`` uses other seeds and writes no page. All runs in one process, on the
arena's stand-in for a model. Noise is added to exact evaluations, so that the true value of every program is known.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.arena.problems import InProcessEvaluator, problem_of
from speciate.domain.arrays import FloatArray
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.target import Target
from speciate.tournaments.statistics.significance import holm, sign_flips

PAGE: Final = Path(__file__).parents[1] / "docs" / "evidence" / "noise.md"
DATA: Final = PAGE.with_suffix(".csv")
SYSTEMS: Final = ("cache-eviction", "expert-placement", "job-scheduling", "spot-instances", "telemetry-compression")
WALL_TIME: Final = "wall-time"
PROBLEMS: Final = (*SYSTEMS, WALL_TIME)
LEVELS: Final[dict[str, float]] = {"none": 0.0, "moderate": 0.05, "high": 0.15}
"""Standard deviation of every reward, in widths of its range; of the wall time, of its logarithm, twice as much."""
BUDGET: Final = 120
FINAL: Final = 5
SEEDS: Final = {"declared": range(3001, 3009), "development": range(1, 7)}
KNOWN, MAXIMUM = "what is known", "keep the maximum"
_SHARED: Final = 0.5
"""Part of the noise's variance that follows from the seed of the evaluation alone, as of a random workload."""
_SLOW, _SLOW_SHARE = 1.3, 0.2
_FALSE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Result:
    """One search. Values are normalised and weighted evenly, higher is better."""

    problem: str
    level: str
    arm: str
    seed: int
    value: float
    """True value of the returned program."""
    best: float
    """Largest true value of a program that was the best one of the search at some time."""
    start: float
    """True value of the seed program."""
    shown: float
    """Value of the returned program as the run gives it."""
    margin: float
    """Half the width of its 95 % interval; 0 without one."""
    repeats: int
    """Evaluations that repeated others."""

    @property
    def is_false(self) -> bool:
        """True if the search had a program as its best that is truly better, by more than a hundredth of the range."""
        return self.best - self.value > _FALSE


def wall_time_problem() -> Problem:
    """Return a problem whose programs set four numbers of a kernel; its seconds are modelled, as is the machine."""
    return Problem(
        slug=WALL_TIME,
        title="Seconds of a kernel",
        kind=ProblemKind.EVALUATOR,
        objectives=(Objective(name="seconds", direction=Direction.MINIMIZE, range=(0.0, 20.0)),),
        targets=(Target(name="none", rule="seconds <= 0", unlock=True),),
        seed_program="block = 16\nunroll = 1\nprefetch = 0\nthreads = 1\n",
        evaluator="def evaluate(candidate, context):\n    raise SystemExit\n",
    )


def seconds_of(program: str) -> float:
    """Return the true seconds of a kernel: a sum of costs with a minimum each, and a penalty for large blocks."""
    names: dict[str, Any] = {}
    exec(compile(program, "kernel.py", "exec"), names)  # noqa: S102 - the stand-in edits numbers
    block, unroll, prefetch, threads = (float(names[name]) for name in ("block", "unroll", "prefetch", "threads"))
    if min(block, unroll, threads) <= 0 or max(block, unroll, threads, abs(prefetch)) > 1e6:
        raise ValueError("out of range")
    cost = 0.4 + 0.12 * np.log2(block / 96) ** 2 + 0.15 * np.log2(unroll / 6) ** 2
    return float(cost + 0.02 * (prefetch - 3) ** 2 / (1 + abs(prefetch)) + 0.2 * np.log2(threads / 8) ** 2 / 2)


@cache
def declared_problem(slug: str) -> Problem:
    """Return a problem with even weights and one target that nothing meets, so that values alone rank programs."""
    if slug == WALL_TIME:
        return wall_time_problem()
    problem = problem_of(slug)
    first = problem.space.selected[0]
    up = first.direction is Direction.MAXIMIZE
    rule = f"{first.name} {'>=' if up else '<='} {1e9 if up else -1e9}"
    weights = {objective.name: 1.0 for objective in problem.space.selected}
    return problem.model_copy(update={"weights": weights, "targets": (Target(name="none", rule=rule, unlock=True),)})


class NoisyEvaluator:
    """Adds noise to exact rewards; ``truth`` is without."""

    tier = "in process"

    def __init__(self, slug: str, level: float, seed: int) -> None:
        self._problem, self._level = declared_problem(slug), level
        self._exact: Callable[[str], Evaluation] = _kernel if slug == WALL_TIME else self._system
        self._system_evaluator = None if slug == WALL_TIME else InProcessEvaluator(slug)
        self._rng = np.random.default_rng([seed, 5])
        self._known: dict[str, Evaluation] = {}

    def evaluate(
        self,
        problem: Problem,  # noqa: ARG002 - the port's signature
        programs: Sequence[str],
        *,
        seeds: Sequence[int],
        timeout_s: float | None = None,  # noqa: ARG002
    ) -> list[Evaluation]:
        return [self._blurred(program, seed) for program, seed in zip(programs, seeds, strict=True)]

    def truth(self, program: str) -> Evaluation:
        if program not in self._known:
            self._known[program] = self._exact(program)
        return self._known[program]

    def _system(self, program: str) -> Evaluation:
        assert self._system_evaluator is not None  # noqa: S101 - only systems call it
        return self._system_evaluator.evaluation(self._problem, program)

    def _blurred(self, program: str, seed: int) -> Evaluation:
        exact = self.truth(program)
        if exact.rewards is None or self._level == 0:
            return exact
        shared, own = (
            np.random.default_rng(seed).normal(size=len(exact.rewards)),
            self._rng.normal(size=len(exact.rewards)),
        )
        noise = np.sqrt(_SHARED) * shared + np.sqrt(1 - _SHARED) * own
        if self._problem.slug == WALL_TIME:
            machine = self._rng.random()
            measured = (
                np.array(exact.rewards) * np.exp(2 * self._level * noise) * (_SLOW if machine < _SLOW_SHARE else 1.0)
            )
        else:
            roles = [objective.role is ObjectiveRole.OBJECTIVE for objective in self._problem.objectives]
            widths = np.array(self._problem.space.widths) * roles
            measured = np.array(exact.rewards) + self._level * widths * noise
        return replace(exact, rewards=tuple(measured.tolist()))


def _kernel(program: str) -> Evaluation:
    try:
        return Evaluation(rewards=(seconds_of(program),))
    except Exception as error:  # noqa: BLE001 - a random edit may raise anything
        return Evaluation(failure=Failure(FailureKind.CRASHED, type(error).__name__, str(error)[:200]))


def expected(slug: str, level: float, rewards: Sequence[float]) -> FloatArray:
    """Return the expectation of noisy rewards, shape (d,): what a mean of many evaluations shows."""
    values = np.array(rewards)
    if slug != WALL_TIME or level == 0:
        return values
    speed = 1 + _SLOW_SHARE * (_SLOW - 1)
    return np.asarray(values * speed * np.exp((2 * level) ** 2 / 2))


def result_of(declared: tuple[str, str, str, int]) -> Result:
    """Make one search."""
    from experiments.arena.simulation import Job, simulated  # adds strategies, which a reader of results must not

    slug, level, arm, seed = declared
    known, deviation = arm == KNOWN, LEVELS[level]
    problem = declared_problem(slug).model_copy(update={"stochastic": known})
    evaluator = NoisyEvaluator(slug, deviation, seed)
    # The evaluations after the end count, too: the other arm searches that much longer.
    spec = {"lanes": 4, "batch": 1, "samples_per_prompt": 1, "final_evaluations": FINAL}
    budget = BUDGET - FINAL if known else BUDGET
    run, _, bests = simulated(
        Job(slug, "small", "adaptive_evolution", "{}", json.dumps(spec), budget, seed), problem, evaluator
    )

    def value(rewards: Sequence[float]) -> float:
        weights = np.array(problem.weight_vector or [1.0])
        return float((problem.space.normalise([rewards]) @ weights).item())

    truths = {}
    for number, candidate in run.candidates.items():
        exact = evaluator.truth(candidate.proposal.program).rewards
        if candidate.evaluation.rewards is not None and exact is not None:
            truths[number] = value(expected(slug, deviation, exact).tolist())
    best = run.progress.best_number
    if best is None:
        raise RuntimeError(f"{declared} found no program")
    margins = np.array(run.progress.final.get("margin") or [0.0] * len(problem.objectives))
    selected = [problem.objectives.index(objective) for objective in problem.space.selected]
    weights = np.array(problem.weight_vector or [1.0])
    # Noise is independent between rewards.
    scaled = (margins / np.array(problem.space.widths))[selected] * weights
    repeats = sum(c.proposal.role is PolicyRole.REPEAT for c in run.candidates.values())
    shown, margin = value(run.progress.best), float(np.sqrt((scaled**2).sum()))
    return Result(
        slug, level, arm, seed, truths[best], max(truths[number] for number in bests), truths[1], shown, margin, repeats
    )


def main() -> int:
    from experiments.arena.searches import prepare

    parser = argparse.ArgumentParser(prog="python -m experiments.noise")
    parser.add_argument("--development", action="store_true", help="other seeds; writes no page")
    parser.add_argument("--problems", nargs="*", default=PROBLEMS, choices=PROBLEMS)
    parser.add_argument("--levels", nargs="*", default=tuple(LEVELS), choices=LEVELS)
    parser.add_argument("--arms", nargs="*", default=(KNOWN, MAXIMUM))
    parser.add_argument("--keep", type=Path, default=DATA, help="results, one line for each search")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only-report", action="store_true", help="write the page from the results")
    given = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    seeds = SEEDS["development" if given.development else "declared"]
    results = read(given.keep)
    done = {(each.problem, each.level, each.arm, each.seed) for each in results}
    declared = [
        (p, level, arm, s) for s in seeds for p in given.problems for level in given.levels for arm in given.arms
    ]
    missing = [] if given.only_report else [each for each in declared if each not in done]
    new = not given.keep.exists()
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(given.workers, context, initializer=prepare) as pool,
        given.keep.open("a", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(field.name for field in fields(Result))
        for result in pool.map(result_of, missing, chunksize=1):
            writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in astuple(result))
            file.flush()
    text = report(read(given.keep))
    if given.development:
        print(text)  # noqa: T201 - a command
    else:
        head, _, _ = PAGE.read_text("utf-8").partition("\n## Results\n")
        PAGE.write_text(f"{head}\n## Results\n\n{text}\n", "utf-8")
    return 0


def read(path: Path) -> list[Result]:
    """Return the results in a file; none if it does not exist."""
    if not path.exists():
        return []
    kinds = {field.name: {"float": float, "int": int}.get(str(field.type), str) for field in fields(Result)}
    with path.open(encoding="utf-8", newline="") as file:
        return [Result(**{name: kinds[name](cell) for name, cell in row.items()}) for row in csv.DictReader(file)]


def report(results: Sequence[Result]) -> str:
    """Return the tables of all results."""
    at = {(each.problem, each.level, each.arm, each.seed): each for each in results}
    pairs = [
        (each, at[each.problem, each.level, MAXIMUM, each.seed])
        for each in results
        if each.arm == KNOWN and (each.problem, each.level, MAXIMUM, each.seed) in at
    ]
    levels = [level for level in LEVELS if any(known.level == level for known, _ in pairs)]
    leads = {level: _leads([pair for pair in pairs if pair[0].level == level]) for level in levels}
    flips = sign_flips(list(leads.values()), np.random.default_rng(0))
    p_values = holm([flip.p_value for flip in flips])
    lines = [
        "| noise | searches | true value | maximum | lead, % | p | false bests | maximum | in the interval | repeats |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for level, p in zip(levels, p_values, strict=True):
        mine = [pair for pair in pairs if pair[0].level == level]
        known, maximum = [pair[0] for pair in mine], [pair[1] for pair in mine]
        covered = np.mean([abs(each.shown - each.value) <= each.margin + 1e-9 for each in known])
        lead = leads[level]
        error = 1.96 * lead.std(ddof=1) / np.sqrt(len(lead)) if len(lead) > 1 else float("nan")
        lines.append(
            f"| {level} | {len(mine)} | {np.mean([e.value for e in known]):.4f} |"
            f" {np.mean([e.value for e in maximum]):.4f} | {lead.mean():+.1f} ± {error:.1f} | {p:.2g} |"
            f" {np.mean([e.is_false for e in known]):.0%} | {np.mean([e.is_false for e in maximum]):.0%} |"
            f" {covered:.1%} | {np.mean([e.repeats for e in known]):.0f} |"
        )
    lines += [
        "",
        _overstated(pairs),
        "",
        "| problem | noise | true value | keep the maximum | shown by it | false bests | keep the maximum |",
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for problem in dict.fromkeys(known.problem for known, _ in pairs):
        for level in levels:
            mine = [pair for pair in pairs if (pair[0].problem, pair[0].level) == (problem, level)]
            if mine:
                known, maximum = [pair[0] for pair in mine], [pair[1] for pair in mine]
                lines.append(
                    f"| `{problem}` | {level} | {np.mean([e.value for e in known]):.4f} |"
                    f" {np.mean([e.value for e in maximum]):.4f} | {np.mean([e.shown for e in maximum]):.4f} |"
                    f" {np.mean([e.is_false for e in known]):.0%} | {np.mean([e.is_false for e in maximum]):.0%} |"
                )
    return "\n".join(lines)


def _overstated(pairs: Sequence[tuple[Result, Result]]) -> str:
    """Return by how much the maximum overstates its best value, and how many intervals hold the true value."""
    noisy = [(known, maximum) for known, maximum in pairs if LEVELS[known.level] > 0]
    excess = {
        level: np.mean([maximum.shown - maximum.value for known, maximum in noisy if known.level == level])
        for level in dict.fromkeys(known.level for known, _ in noisy)
    }
    inside = {"all": [known for known, _ in noisy]} | {
        problem: [known for known, _ in noisy if known.problem == problem]
        for problem in dict.fromkeys(known.problem for known, _ in noisy)
    }
    shares = [
        f"{name} {np.mean([abs(e.shown - e.value) <= e.margin for e in of]):.1%} of {len(of)}"
        for name, of in inside.items()
    ]
    values = ", ".join(f"{level} {100 * value:.1f} %" for level, value in excess.items())
    return (
        f"Value that the maximum shows minus the true one, of the range: {values}."
        f" In the interval: {', '.join(shares)}."
    )


def _leads(pairs: Sequence[tuple[Result, Result]]) -> FloatArray:
    """Return the lead of every pair in percent of the range of values, shape (n,)."""
    return np.array([100 * (known.value - maximum.value) for known, maximum in pairs])


if __name__ == "__main__":
    raise SystemExit(main())
