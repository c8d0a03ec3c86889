"""Find out when training for a set pays: take away its two conditions, one at a time (``make causes``).

On ``programs`` VPO unlocks 9.9 points more than GRPO in eight training seeds (``docs/evidence/methods.md``). Here the
same trainings lack one thing each: the demonstrations of sets in the base, or the trade-off between the rewards, whose
components are all replaced by their mean. Steps with a stored result are skipped: an interrupted run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from experiments.reproduction.arms import ARMS, METHOD_SEEDS, METHODS, TrainingArm
from experiments.reproduction.evidence import Evidence
from experiments.reproduction.predictions import Comparison, Prediction, do_all, evaluate
from experiments.reproduction.report import replace_results
from speciate.domain.problem import Problem
from speciate.policies.manifest import MANIFEST
from speciate.training.tasks import GENERATED
from speciate.training.tasks.programs import ProgramsTask

PLAN: Final = METHODS["programs"]
SEEDS: Final = METHOD_SEEDS["programs"]
"""Training seeds, those of the comparison of methods, so that its runs are the controls."""

PUBLISHED: Final = tuple(arm for arm in ARMS if arm.name in ("base", "grpo", "vpo"))
BASE_WITHOUT_SETS: Final = TrainingArm("base_without_sets", "base", "base without demonstrations of sets")
NEW: Final = (
    BASE_WITHOUT_SETS,
    TrainingArm("grpo_without_sets", "grpo", "GRPO, base without demonstrations of sets"),
    TrainingArm("vpo_without_sets", "vpo", "VPO, base without demonstrations of sets"),
    TrainingArm("vpo_collinear", "vpo", "VPO, all rewards replaced by their mean"),
)

PREDICTIONS: Final = (
    Prediction("Without a trade-off VPO loses its lead over GRPO", "vpo_collinear", "grpo", positive=False),
    Prediction("… since the trade-off is what it learns from", "vpo", "vpo_collinear"),
    Prediction(
        "Without demonstrated sets VPO loses its lead over GRPO",
        "vpo_without_sets",
        "grpo_without_sets",
        positive=False,
    ),
    Prediction("… since it has to write sets first", "vpo", "vpo_without_sets"),
)


class CollinearTask(ProgramsTask):
    """``programs`` with every reward replaced by the mean of all, so that all weightings agree."""

    def score(self, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[tuple[float, ...]]]:
        return [[(float(np.mean(rewards)),) * len(rewards) for rewards in vectors] for vectors in super().score(batch)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.causes", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("causes"), help="folder of checkpoints (default causes)")
    parser.add_argument("--evidence", type=Path, default=Path("docs/evidence/reproduction"), help="folder of outcomes")
    parser.add_argument("--report", type=Path, default=Path("docs/evidence/causes.md"), help="file of the report")
    parser.add_argument("--jobs", type=int, default=2, help="concurrent seeds, one core each (default 2)")
    parser.add_argument("--only-report", action="store_true", help="only write the report from stored outcomes")
    options = parser.parse_args(arguments)
    evidence = Evidence(options.evidence)
    if not options.only_report:
        options.out.mkdir(parents=True, exist_ok=True)
        do_all(SEEDS, partial(_train, options.out, evidence), options.jobs)
    replace_results(options.report, list(parts(evidence)))
    return 0


def parts(evidence: Evidence) -> Iterator[str]:
    """Yield the parts of the report."""
    comparison = Comparison(PLAN, SEEDS, (*PUBLISHED, *NEW), PREDICTIONS, evidence)
    if missing := [seed for seed in SEEDS if seed not in comparison.complete]:
        yield f"**Not complete yet**: training seeds {', '.join(map(str, missing))} are missing."
    if comparison.complete:
        yield "## Results"
        yield comparison.verdicts()
        yield "## Arms"
        yield comparison.table()


def _train(folder: Path, evidence: Evidence, seed: int) -> str:
    """Train and evaluate the new arms of a seed: a part of them is balanced."""
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import BASES, ensure_base, train_policy

    task = GENERATED["programs"]
    for arm in NEW:
        if evidence.has(PLAN, arm, seed):
            continue
        kind = "base" if arm.name == "vpo_collinear" else BASE_WITHOUT_SETS.name
        base, policy = (folder / f"{name}-{seed}" for name in (kind, arm.name))
        ensure_base(task, replace(BASES["programs"], seed=seed, sets=kind == "base"), base)
        if arm is not BASE_WITHOUT_SETS and not (policy / MANIFEST).is_file():
            rewarded = CollinearTask("programs", hidden=(3, 4), shown=3) if arm.name == "vpo_collinear" else task
            recipe = TrainConfig.tiny(arm.method, "programs", seed=seed)
            train_policy(rewarded, recipe, base, policy, resume=policy.is_dir())
        evaluate(evidence, PLAN, arm, seed, policy)
    return f"seed {seed} is complete"


if __name__ == "__main__":
    raise SystemExit(main())
