"""``make reproduce``: train every arm, ask all of them about held-out problems, and write down what came out.

``python -m speciate.training.reproduction --out DIR``. Every step keeps its result in the folder and is skipped when it
is there: a run that was stopped goes on where it was, and a longer one (more seeds) adds to a shorter one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from speciate.domain.errors import SpeciateError
from speciate.policies.manifest import MANIFEST
from speciate.training.arms import ABLATIONS, ARMS, PLANS, SEEDS, VARIANTS, Arm, Plan
from speciate.training.pools import Asked, Pool, evolved, independent
from speciate.training.report import write_ablations, write_report
from speciate.training.tasks import GROWN, Split

MODES: Final = ("independent", "evolved", "base_mutates")
"""How answers are gathered: each by itself; evolved by the policy itself; proposed by it and changed by the base."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the reproduction."""
    parser = argparse.ArgumentParser(prog="python -m speciate.training.reproduction", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reproduction"), help="folder of checkpoints and answers")
    parser.add_argument("--report", type=Path, help="where the report goes, by default into docs")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="training seeds")
    parser.add_argument("--tasks", nargs="+", default=list(PLANS), choices=list(PLANS))
    parser.add_argument("--jobs", type=int, default=2, help="arms that are trained at once, one core each")
    parser.add_argument("--only-report", action="store_true", help="train and ask nothing: report on what is there")
    parser.add_argument("--ablations", action="store_true", help="compare variants of Vector Max-at-K instead")
    given = parser.parse_args(arguments)
    console = Console()
    plans = [ABLATIONS] if given.ablations else [PLANS[task] for task in given.tasks]
    report = given.report or Path("docs/vector-max-at-k.md" if given.ablations else "docs/reproduction.md")
    try:
        if not given.only_report:
            train_all(given.out, plans, given.seeds, given.jobs, console)
            for plan in plans:
                for seed in given.seeds:
                    ask_all(given.out, plan, seed, console)
        if given.ablations:
            write_ablations(given.out, report, given.seeds)
        else:
            write_report(given.out, report, plans, given.seeds)
    except SpeciateError as error:
        console.print(f"error: {error}", style="red", markup=False)
        return 1
    console.print(f"The report is in {report}.")
    return 0


def train_all(folder: Path, plans: Sequence[Plan], seeds: Sequence[int], jobs: int, console: Console) -> None:
    """Train what is not there yet: bases first, since all other arms begin with them."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(plan, arm, seed) for seed in seeds for plan in plans for arm in (ARMS[0], *arms_of(plan))]
    wanted = list(dict.fromkeys(wanted))
    for bases in (True, False):
        commands = [
            (checkpoint(folder, plan, arm, seed), command_of(folder, plan, arm, seed))
            for plan, arm, seed in wanted
            if (arm.method == "base") is bases
        ]
        missing = [(made, command) for made, command in commands if not (made / MANIFEST).is_file()]
        with ThreadPoolExecutor(jobs) as pool:
            for made in pool.map(lambda work: _run(*work), missing):
                console.print(f"trained {made.name}", markup=False)


def ask_all(folder: Path, plan: Plan, seed: int, console: Console) -> None:
    """Ask every arm of a seed about the held-out problems, in every mode; keep the answers' rewards."""
    task = GROWN[plan.task]
    arms = [arm for arm in arms_of(plan) if (checkpoint(folder, plan, arm, seed) / MANIFEST).is_file()]
    missing = [(a, m) for a in arms for m in MODES if not answers(folder, plan, a, seed, m).is_file()]
    if not missing:
        return
    problems = list(task.problems(Split.TEST, plan.problems, start=plan.start))
    base = Asked(checkpoint(folder, plan, ARMS[0], seed))
    for arm in arms:
        modes = [mode for a, mode in missing if a is arm]
        policy = base if arm.method == "base" else Asked(checkpoint(folder, plan, arm, seed)) if modes else base
        for mode in modes:
            if mode == "independent":
                pool = independent(policy, task, problems, plan.answers, seed)
            elif mode == "base_mutates" and arm.method == "base":  # the same again
                pool = read_answers(answers(folder, plan, arm, seed, "evolved"))
            else:
                mutator = policy if mode == "evolved" else base
                pool = evolved(policy, mutator, task, problems, plan.answers, seed)
            answers(folder, plan, arm, seed, mode).parent.mkdir(exist_ok=True)
            np.savez_compressed(answers(folder, plan, arm, seed, mode), **asdict(pool))
            console.print(f"asked {plan.task} {arm.name} {seed} {mode}", markup=False)


def arms_of(plan: Plan) -> Iterator[Arm]:
    """Yield the arms of a plan."""
    yield from (arm for arm in (*ARMS, *VARIANTS) if arm.name in plan.arms)


def checkpoint(folder: Path, plan: Plan, arm: Arm, seed: int) -> Path:
    """Return where an arm's policy lies."""
    return folder / f"{plan.task}-{arm.name}-{seed}"


def answers(folder: Path, plan: Plan, arm: Arm, seed: int, mode: str) -> Path:
    """Return where its answers lie."""
    return folder / "answers" / f"{plan.task}-{arm.name}-{seed}-{mode}.npz"


def read_answers(path: Path) -> Pool:
    """Return answers that were kept."""
    with np.load(path) as found:
        return Pool(**{name: found[name] for name in found.files})


def command_of(folder: Path, plan: Plan, arm: Arm, seed: int) -> list[str]:
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


def _run(made: Path, command: list[str]) -> Path:
    with made.with_suffix(".log").open("w", encoding="utf-8") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SpeciateError(f"training {made.name} failed with code {done.returncode}; see {made.with_suffix('.log')}.")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
