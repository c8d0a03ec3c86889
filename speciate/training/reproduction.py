"""``make reproduce``: train every arm, ask all of them about held-out problems, and write down what came out.

``python -m speciate.training.reproduction --out DIR``. Every step keeps its result and is skipped when that is there: a
run that was stopped goes on where it was, and a longer one (more seeds) adds to a shorter one. What the report of this
repository was written from lies beside it: ``--only-report --evidence docs/evidence/reproduction``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from speciate.domain.errors import SpeciateError
from speciate.policies.manifest import MANIFEST, read_manifest, weights_digest
from speciate.training.arms import ABLATIONS, ARMS, PLANS, SEEDS, VARIANTS, Arm, Plan
from speciate.training.outcomes import Evidence, Mode, outcome_of, problems_of
from speciate.training.pools import Asked, Pool, evolved, independent
from speciate.training.report import write_ablations, write_report
from speciate.training.tasks import GROWN


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the reproduction."""
    parser = argparse.ArgumentParser(prog="python -m speciate.training.reproduction", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("reproduction"), help="folder of checkpoints")
    parser.add_argument("--evidence", type=Path, help="folder of what they answered, by default OUT/evidence")
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
    evidence = Evidence(given.evidence or given.out / "evidence")
    try:
        if not given.only_report:
            train_all(given.out, plans, given.seeds, given.jobs, console)
            for plan in plans:
                for seed in given.seeds:
                    ask_all(given.out, evidence, plan, seed, console)
        if given.ablations:
            write_ablations(evidence, report, given.seeds)
        else:
            write_report(evidence, report, plans, given.seeds)
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


def ask_all(folder: Path, evidence: Evidence, plan: Plan, seed: int, console: Console) -> None:
    """Ask every arm of a seed that is trained about the held-out problems, in every mode; keep what came of it."""
    arms = [
        arm
        for arm in arms_of(plan)
        if (checkpoint(folder, plan, arm, seed) / MANIFEST).is_file() and not evidence.has(plan, arm, seed)
    ]
    if not arms:
        return
    task, problems = GROWN[plan.task], problems_of(plan)
    base = Asked(checkpoint(folder, plan, ARMS[0], seed))
    for arm in arms:
        made = checkpoint(folder, plan, arm, seed)
        policy = base if arm.method == "base" else Asked(made)
        mutators = list(dict.fromkeys([policy, base]))
        grown = evolved(policy, mutators, task, problems, plan.answers, seed)
        pools: dict[Mode, Pool] = {
            "independent": independent(policy, task, problems, plan.answers, seed),
            "evolved": grown[0],
            "base_mutates": grown[-1],
        }
        evidence.keep(plan, arm, outcome_of(plan, arm, seed, read_manifest(made), weights_digest(made), pools))
        console.print(f"asked {made.name}", markup=False)


def arms_of(plan: Plan) -> Iterator[Arm]:
    """Yield the arms of a plan."""
    yield from (arm for arm in (*ARMS, *VARIANTS) if arm.name in plan.arms)


def checkpoint(folder: Path, plan: Plan, arm: Arm, seed: int) -> Path:
    """Return where an arm's policy lies."""
    return folder / f"{plan.task}-{arm.name}-{seed}"


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
