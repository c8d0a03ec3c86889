"""How far search without a model gets on numeric problems, beside restarts of scipy's optimizers at equal evaluations.

``python -m benchmarks floor`` prints the tables and writes docs/evidence/floor.md.
"""

from __future__ import annotations

import csv
import math
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
from rich.progress import track
from scipy.optimize import minimize
from scipy.stats import t as student

from benchmarks.parts import CONSOLE
from speciate.domain.budget import Budget
from speciate.domain.candidate import Evaluation, Failure, FailureKind
from speciate.domain.ensemble import PolicyChoice
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.policies import build_client
from speciate.policies.mutators.numbers import written
from speciate.policies.mutators.reading import read_source
from speciate.policies.mutators.source import applied
from speciate.ports.work import RunContext, WeightedPolicy
from speciate.problems.loader import known_problems, load_problem
from speciate.runs.executor import LocalQueue, WorkExecutor, drain
from speciate.settings import Settings
from tests.support.memory_store import MemoryWorkStore
from tests.support.script_evaluators import Evaluator, evaluator_in

PAGE: Final = Path(__file__).parents[1] / "docs" / "evidence" / "floor.md"
DATA: Final = PAGE.with_suffix(".csv")
PROBLEMS: Final = (
    "autocorrelation-1", "autocorrelation-2", "autocorrelation-3", "circle-packing-32", "circles-in-rectangle-21",
    "circles-in-square-26", "distance-ratio-2d-16", "distance-ratio-3d-14", "erdos-minimum-overlap",
    "heilbronn-convex-13", "heilbronn-convex-14", "heilbronn-triangle-11", "hexagons-11", "hexagons-12",
    "uncertainty-inequality",
)  # fmt: skip
"""The problems of the set ``frontier-math`` whose seed program has floats."""
LISTS: Final = {"distance-ratio-2d-16": 32, "autocorrelation-2": 30, "erdos-minimum-overlap": 30}
"""Problems whose answer is also written as a list of that many random constants."""
SEEDS: Final = (1, 2, 3, 4, 5)
MARKS: Final = (60, 300)
"""Evaluations after which the best score is compared."""
STRATEGY: Final = "vector_evolution"
OPTIONS: Final = {"min_elites": 1}
"""Without this, most programs of a short run start from the seed program."""
ARMS: Final[Mapping[str, tuple[str, ...]]] = {
    "program_mutator": ("program_mutator",),
    "polish": ("polish",),
    "both": ("program_mutator", "polish"),
}
"""Policies of the searches; several share the requests by ``--choice ucb``."""
SCIPY: Final = "scipy, restarts"
LIMIT_S: Final = 5.0
METHOD: Final = f"""
Written by `python -m benchmarks floor`. `{STRATEGY}` selects (option `min_elites=1`), one request for one program at a
time. scipy has Powell's method on the floats of the same program by the same evaluators: from its own values, then from
random changes of these or of the best ones. All arms have the same number of evaluations. Scores are means of the
rewards normalised by the declared ranges: 1 is the top, and a program without a feasible answer, or far beyond the
range, has 0. Everything runs in one process, without the sandbox. Programs are the seed programs of the problems (only
the random choices differ between seeds) and lists of random constants, which differ (of `distance-ratio-2d-16`, a grid
with random changes). Seeds {SEEDS[0]} to {SEEDS[-1]}. Means; in brackets the 95 % interval of the paired difference
from scipy (Student), positive is better. After 60 evaluations, too: [floor.csv](floor.csv).
"""


@dataclass(frozen=True, slots=True)
class Job:
    """A search of one arm."""

    slug: str
    listed: bool
    arm: str
    seed: int


class _Evaluator:
    """Scores programs in this process, without the sandbox's time."""

    tier = "in process"

    def __init__(self, evaluate: Evaluator) -> None:
        self._evaluate = evaluate

    def evaluate(
        self, problem: Problem, programs: Any, *, seeds: Any, timeout_s: float | None = None
    ) -> list[Evaluation]:
        return [self.one(problem, program) for program in programs]

    def one(self, problem: Problem, program: str) -> Evaluation:
        names: dict[str, Any] = {}
        signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
        try:
            exec(program, names)
            rewards = problem.space.vector(self._evaluate(lambda name, *given: names[name](*given)))
        except Exception as error:  # noqa: BLE001  # a mutated program may raise anything
            failure = Failure(kind=FailureKind.CRASHED, reason="raised", detail=str(error)[:100])
            return Evaluation(rewards=None, failure=failure)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return Evaluation(rewards=rewards)


def program_of(slug: str, values: np.ndarray[Any, Any]) -> str:
    """Return a program whose constants are the coordinates or heights of a problem's answer."""
    rows = ",\n    ".join(f"{value:.4f}" for value in values)
    block = f"# EVOLVE-BLOCK-START\nVALUES = [\n    {rows},\n]\n# EVOLVE-BLOCK-END\n"
    pairs = "[[a, b] for a, b in zip(VALUES[::2], VALUES[1::2])]"
    answer = pairs if "ratio" in slug else "[max(0.0, value) for value in VALUES]"
    return f"{block}\n\ndef solve():\n    return {answer}\n"


def score(problem: Problem, evaluation: Evaluation) -> float:
    """Return the mean of the normalised rewards; 0 if there are none or they are infeasible."""
    if evaluation.rewards is None:
        return 0.0
    return max(0.0, float(problem.space.normalise([evaluation.rewards]).mean()))


def made(job: Job) -> list[float]:
    """Return the best score at each mark."""
    signal.signal(signal.SIGALRM, _expire)
    problem = load_problem(known_problems()[job.slug])
    if job.listed:
        values = np.random.default_rng(job.seed).random(LISTS[job.slug])
        if "ratio" in job.slug:  # points near those of a grid: all at random are beyond the range, where no run begins
            values = (np.mgrid[:4, :4].T.ravel() + 0.2 * values) / 3
        problem = problem.model_copy(update={"seed_program": program_of(job.slug, values)})
    evaluator = _Evaluator(evaluator_in(known_problems()[job.slug]))
    scores = (searched if job.arm in ARMS else restarted)(job, problem, evaluator)
    return [max(scores[:mark]) for mark in MARKS]


def _expire(*_: object) -> None:
    raise TimeoutError


def searched(job: Job, problem: Problem, evaluator: _Evaluator) -> list[float]:
    """Return the scores of a search by policies without a model, in order."""
    policies = [WeightedPolicy(Policy(slug=kind.replace("_", "-"), kind=kind), uuid4()) for kind in ARMS[job.arm]]
    spec = RunSpec(
        strategy=STRATEGY,
        strategy_options=OPTIONS,
        budget=Budget(evaluations=MARKS[-1]),
        seed=job.seed,
        lanes=1,
        batch=1,
        samples_per_prompt=1,
        policy_choice=PolicyChoice.UCB,
    )
    ensembles = {PolicyRole.PROPOSE: tuple(policies)} if len(policies) > 1 else {}
    context = RunContext(uuid4(), problem, policies[0].policy, policies[0].policy_id, spec, ensembles=ensembles)
    store, signals = MemoryWorkStore(), LocalQueue()
    store.add(context)
    signals.committed(store.start(context.run_id))
    drain(WorkExecutor(store, signals, evaluator, build_client), signals)
    return [score(problem, c.evaluation) for _, c in sorted(store.runs[context.run_id].candidates.items())]


class _Spent(Exception):  # noqa: N818
    """All evaluations are spent."""


def restarted(job: Job, problem: Problem, evaluator: _Evaluator) -> list[float]:
    """Return the scores of an optimizer of scipy over the floats of the seed program, in order."""
    source, rng = read_source(problem.seed_program), np.random.default_rng(job.seed)
    numbers = [source.numbers[i] for i in source.floats]
    start = np.array([number.value for number in numbers])
    unit = 0.1 * np.where(start == 0, source.scale, np.abs(start))
    scores, best = list[float](), (math.inf, np.zeros(len(start)))

    def value(point: np.ndarray[Any, Any]) -> float:
        nonlocal best
        if len(scores) == MARKS[-1]:
            raise _Spent
        values = (start + unit * point).tolist()
        edits = [written(number, each) for number, each in zip(numbers, values, strict=True)]
        evaluation = evaluator.one(problem, applied(source.data, edits).decode())
        scores.append(score(problem, evaluation))
        found = 1e4 if (r := evaluation.rewards) is None else -float(problem.space.normalise([r]).mean())
        if found < best[0]:
            best = found, point.copy()
        return found

    first = np.zeros(len(start))
    try:
        while True:
            minimize(value, first, method="Powell")
            first = rng.choice((0, 1)) * best[1] + rng.choice((1, 3)) * rng.standard_normal(len(start))
    except _Spent:
        return scores


def run(_: Settings) -> None:
    """Search, restart, and write the page."""
    arms = [*ARMS, SCIPY]
    tasks = [(slug, False) for slug in PROBLEMS] + [(slug, True) for slug in LISTS]
    jobs = [Job(*task, arm, seed) for task in tasks for seed in SEEDS for arm in arms]
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        results = list(track(pool.map(made, jobs, chunksize=5), "searching", len(jobs), console=CONSOLE))
    scores = dict(zip(jobs, results, strict=True))
    values = {
        (task, arm): np.array([scores[Job(*task, arm, seed)] for seed in SEEDS]) for task in tasks for arm in arms
    }
    PAGE.write_text(page(tasks, values), encoding="utf-8")
    with DATA.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([_COLUMNS, *_rows(tasks, values)])
    CONSOLE.print(f"wrote {PAGE}")


Task = tuple[str, bool]
Values = Mapping[tuple[Task, str], np.ndarray[Any, Any]]


def page(tasks: Sequence[Task], values: Values) -> str:
    """Return the page in Markdown; ``values`` have shape (seeds, marks)."""
    arms = [*ARMS, SCIPY]
    lines = ["# Search without a model", ""]
    lines += [
        f"Programs of {len(tasks)} on which an arm is better : worse than scipy (intervals) : has a lower mean.",
        "",
    ]
    lines += [f"| evaluations | {' | '.join(ARMS)} |", "|---|---|---|---|"]
    for at, mark in enumerate(MARKS):
        cells = [str(mark)]
        for arm in ARMS:
            gains = [_gain(values, task, arm, at) for task in tasks]
            better, worse = sum(low > 0 for low, _, _ in gains), sum(high < 0 for _, _, high in gains)
            cells.append(f"{better} : {worse} : {sum(mean < 0 for _, mean, _ in gains)}")
        lines.append(f"| {' | '.join(cells)} |")
    lines.append(METHOD)
    lines += [
        f"## After {MARKS[-1]} evaluations",
        "",
        f"| program | {' | '.join(arms)} |",
        f"|---|{'---|' * len(arms)}",
    ]
    for task in tasks:
        last = [row for row in _rows([task], values) if row[2] == MARKS[-1]]
        cells = [f"{mean}{low and f' [{low}, {high}]'}" for *_, mean, low, high in last]
        lines.append(f"| `{task[0]}`{', a list' * task[1]} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


_COLUMNS: Final = ("problem", "program", "evaluations", "arm", "mean", "gain_low", "gain_high")


def _rows(tasks: Sequence[Task], values: Values) -> Iterator[tuple[Any, ...]]:
    """Yield the mean of every program, mark and arm, with the 95 % interval of its gain on scipy."""
    for slug, is_list in tasks:
        for at, mark in enumerate(MARKS):
            for arm in [*ARMS, SCIPY]:
                low, _, high = _gain(values, (slug, is_list), arm, at)
                ends = ("", "") if arm == SCIPY else (f"{low:+.3f}", f"{high:+.3f}")
                mean = f"{values[(slug, is_list), arm][:, at].mean():.4f}"
                yield slug, "list" if is_list else "seed program", mark, arm, mean, *ends


def _gain(values: Values, task: Task, arm: str, at: int) -> tuple[float, float, float]:
    """Return the paired gain of an arm on scipy: its mean between the ends of the 95 % interval."""
    gains = values[task, arm][:, at] - values[task, SCIPY][:, at]
    half = float(student.ppf(0.975, len(gains) - 1) * gains.std(ddof=1) / math.sqrt(len(gains)))
    return float(gains.mean()) - half, float(gains.mean()), float(gains.mean()) + half
