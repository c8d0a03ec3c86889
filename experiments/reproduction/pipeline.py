"""Train every arm, evaluate all of them on held-out problems, and write the report (``make reproduce``).

``python -m experiments.reproduction --out DIR`` stores the result of every step and skips steps that have one: an
interrupted run continues where it stopped, and a longer one (more seeds) extends a shorter one. An arm with stored
answers is not trained again. ``--only-report --evidence docs/evidence/reproduction`` generates the published report
again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path

from rich.console import Console

from experiments.reproduction.answers import AnswerPool, LocalPolicy, evolved, independent
from experiments.reproduction.arms import (
    ABLATIONS,
    ARMS,
    CONTROL_SEEDS,
    METHOD_SEEDS,
    METHODS,
    NEW_SEEDS,
    PLANS,
    REPLICATION,
    RETRAINED,
    SAMPLING,
    SEEDS,
    VARIANTS,
    TaskPlan,
    TrainingArm,
)
from experiments.reproduction.evidence import Evidence, Mode, control_outcome_of, outcome_of, problems_of
from experiments.reproduction.methods import write_methods
from experiments.reproduction.report import write_ablations, write_report
from speciate.domain.errors import SpeciateError
from speciate.domain.problem import Problem
from speciate.policies.manifest import MANIFEST, read_manifest, weights_digest
from speciate.training.tasks import GENERATED

Work = tuple[TaskPlan, TrainingArm, int]
"""A task, an arm and a training seed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the reproduction."""
    given = _parser().parse_args(arguments)
    console = Console()
    plans = [PLANS[task] for task in given.tasks]
    seeds = given.seeds or (NEW_SEEDS if given.replication else SEEDS)
    page = "methods.md" if given.methods else "vector-max-at-k.md" if given.ablations else "reproduction.md"
    report = given.report or Path("docs/evidence") / page
    evidence = Evidence(given.evidence or given.out / "evidence")
    try:
        if not given.only_report:
            wanted = _method_work(given) if given.methods else _work(given, plans, seeds)
            make_all(given.out, evidence, wanted, given.jobs, console)
        if given.methods:
            write_methods(evidence, report)
        elif given.ablations:
            write_ablations(evidence, report, seeds)
        else:
            write_report(evidence, report, plans, SEEDS if given.replication else seeds)
    except ModuleNotFoundError as error:
        console.print(f"error: {error}: pip install 'speciate[train,dev]'", style="red", markup=False)
        return 1
    except SpeciateError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    console.print(f"The report is in {report}.")
    return 0


def _work(given: argparse.Namespace, plans: list[TaskPlan], seeds: Sequence[int]) -> list[Work]:
    """Return the arms to train and evaluate, in order."""
    wanted = [ABLATIONS] if given.ablations else [REPLICATION] if given.replication else plans
    return [(plan, arm, seed) for seed in seeds for plan in wanted for arm in arms_of(plan)]


def _method_work(given: argparse.Namespace) -> list[Work]:
    """Return the arms of the comparison of methods and its controls, seed by seed: a part of them is balanced."""
    plans = [plan for plan in METHODS.values() if plan.task in given.tasks]
    found = []
    for number in range(max(map(len, METHOD_SEEDS.values()))):
        for plan in plans:
            seed = METHOD_SEEDS[plan.task][number]
            if given.seeds is None or seed in given.seeds:
                found += [(plan, arm, seed) for arm in arms_of(plan)]
                found += [(plan, arm, seed) for arm in RETRAINED if seed in CONTROL_SEEDS[plan.task]]
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments.reproduction", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reproduction"), help="folder of checkpoints")
    parser.add_argument("--evidence", type=Path, help="folder of their outcomes (default OUT/evidence)")
    parser.add_argument("--report", type=Path, help="file of the report (default in docs/evidence)")
    parser.add_argument("--seeds", type=int, nargs="+", help="training seeds")
    parser.add_argument("--tasks", nargs="+", default=list(PLANS), choices=list(PLANS))
    parser.add_argument("--jobs", type=int, default=2, help="concurrent arms, one core each (default 2)")
    parser.add_argument("--only-report", action="store_true", help="only write the report from stored outcomes")
    others = parser.add_mutually_exclusive_group()
    others.add_argument("--ablations", action="store_true", help="compare variants of Vector Max-at-K instead")
    others.add_argument("--methods", action="store_true", help="compare methods over eight training seeds instead")
    others.add_argument(
        "--replication", action="store_true", help="run the replication that was declared later instead"
    )
    return parser


def make_all(folder: Path, evidence: Evidence, works: Sequence[Work], jobs: int, console: Console) -> None:
    """Train and evaluate every arm that has no stored outcome.

    Args:
        folder: Folder of checkpoints.
        evidence: Folder of outcomes.
        works: The arms, in order.
        jobs: Concurrent arms.
        console: Console for progress messages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [one for one in works if not (evidence.has(*one) and evidence.has_controls(*one))]
    bases = dict.fromkeys((plan, ARMS[0], seed) for plan, _, seed in wanted)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the processes below, which have not imported numpy yet
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for work, doing in ((partial(_train, folder), list(bases)), (partial(_make, folder, evidence), wanted)):
                begun = [pool.submit(work, one) for one in doing]  # bases first: all other arms begin with them
                for number, done in enumerate(as_completed(begun), 1):
                    console.print(f"{done.result()} ({number} of {len(begun)})", markup=False)
        finally:
            pool.shutdown(cancel_futures=True)  # after a failure, started arms still finish


def ask(folder: Path, evidence: Evidence, plan: TaskPlan, arm: TrainingArm, seed: int) -> None:
    """Evaluate a trained arm on the held-out problems, in every mode; store the outcome."""
    made = checkpoint(folder, plan, arm, seed)
    base = LocalPolicy(checkpoint(folder, plan, ARMS[0], seed))
    policy = base if arm.method == "base" else LocalPolicy(made)
    task, problems = GENERATED[plan.task], _problems(plan)
    grown = evolved(policy, list(dict.fromkeys([policy, base])), task, problems, plan.answers, seed)
    pools: dict[Mode, AnswerPool] = {
        "independent": independent(policy, task, problems, plan.answers, seed),
        "evolved": grown[0],
        "base_mutates": grown[-1],
    }
    evidence.keep(plan, arm, outcome_of(plan, arm, seed, read_manifest(made), weights_digest(made), pools))


def ask_by_sampling(folder: Path, evidence: Evidence, plan: TaskPlan, arm: TrainingArm, seed: int) -> None:
    """Evaluate a trained arm by every way of sampling; store the outcome."""
    made, task, problems = checkpoint(folder, plan, arm, seed), GENERATED[plan.task], _problems(plan)
    pools = {}
    for control in SAMPLING:
        policy = LocalPolicy(
            made, temperature=control.temperature, top_p=control.top_p, answers_per_rollout=control.answers
        )
        pools[control.name] = independent(policy, task, problems, plan.answers, seed)
    evidence.keep(plan, arm, control_outcome_of(plan, arm, seed, weights_digest(made), pools))


def arms_of(plan: TaskPlan) -> Iterator[TrainingArm]:
    """Yield the arms of a plan."""
    yield from (arm for arm in (*ARMS, *VARIANTS) if arm.name in plan.arms)


def checkpoint(folder: Path, plan: TaskPlan, arm: TrainingArm, seed: int) -> Path:
    """Return the folder of an arm's checkpoint."""
    return folder / f"{plan.task}-{arm.name}-{seed}"


def command_of(folder: Path, plan: TaskPlan, arm: TrainingArm, seed: int) -> list[str]:
    """Return the command that trains an arm."""
    made = checkpoint(folder, plan, arm, seed)
    command = ["train", "--task", plan.task, "--method", arm.method, "--seed", str(seed)]
    if arm.method != "base":
        config = arm.config(plan.task, seed)
        command += ["--base", str(checkpoint(folder, plan, ARMS[0], seed))]
        command += ["--steps", str(config.steps), "--set", f"group={config.group}"]
        command += [text for setting in arm.settings for text in ("--set", setting)]
    resume = ["--resume"] if made.is_dir() and arm.method != "base" else []
    return [sys.executable, "-m", "speciate.cli", *command, "--out", str(made), *resume]


def _make(folder: Path, evidence: Evidence, one: Work) -> str:
    _train(folder, one)
    if not evidence.has(*one):
        ask(folder, evidence, *one)
    if not evidence.has_controls(*one):
        ask_by_sampling(folder, evidence, *one)
    return f"asked {checkpoint(folder, *one).name}"


def _train(folder: Path, one: Work) -> str:
    """Train an arm, unless it has been trained, in a separate process that returns its memory."""
    plan, arm, seed = one
    made = checkpoint(folder, plan, arm, seed)
    if not (made / MANIFEST).is_file():
        with made.with_suffix(".log").open("w", encoding="utf-8") as log:
            command = command_of(folder, plan, arm, seed)
            done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
        if done.returncode:
            raise SpeciateError(
                f"training {made.name} failed with code {done.returncode}; see {made.with_suffix('.log')}."
            )
    return f"trained {made.name}"


@cache
def _problems(plan: TaskPlan) -> list[Problem]:
    return problems_of(plan)
