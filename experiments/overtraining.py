"""Find out whether updates on unsolved problems alone keep a policy's diversity (``make overtraining``).

GRPO on mazes ends below its own base: within 90 answers it meets 238 of 400 targets, the base 302
(``docs/evidence/methods.md``). "Understanding Diversity Collapse in RLVR via the Lens of Overtraining" (arXiv
2606.15455) finds the cause in updates on problems that are solved already. Here the same trainings draw no problem
again whose targets have all been met (``unsolved_only``). An interrupted run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from experiments.reproduction.arms import ARMS, METHOD_SEEDS, METHODS, TrainingArm
from experiments.reproduction.evidence import Evidence
from experiments.reproduction.predictions import Comparison, Prediction, do_all, evaluate
from experiments.reproduction.report import replace_results
from speciate.policies.manifest import MANIFEST
from speciate.training.tasks import GENERATED

GATED: Final = (
    TrainingArm("grpo_unsolved", "grpo", "GRPO, unsolved problems only"),
    TrainingArm("vpo_unsolved", "vpo", "VPO, unsolved problems only"),
    TrainingArm("vector_max_at_k_24_unsolved", "vector_max_at_k", "Vector Max-at-K, unsolved problems only", group=24),
)
PREDICTIONS: Final = (
    Prediction("GRPO meets more targets with the gate", "grpo_unsolved", "grpo"),
    Prediction("… and no longer fewer than its base, within 90", "grpo_unsolved", "base", within=90),
    Prediction("VPO meets more targets with the gate", "vpo_unsolved", "vpo"),
    Prediction("… and Vector Max-at-K", "vector_max_at_k_24_unsolved", "vector_max_at_k_24"),
    Prediction("VPO without the gate stays ahead of GRPO with it", "vpo", "grpo_unsolved"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.overtraining", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("overtraining"), help="folder of checkpoints")
    parser.add_argument("--evidence", type=Path, default=Path("docs/evidence/reproduction"), help="folder of outcomes")
    parser.add_argument("--report", type=Path, default=Path("docs/evidence/overtraining.md"), help="file of the report")
    parser.add_argument("--jobs", type=int, default=2, help="concurrent trainings, one core each (default 2)")
    parser.add_argument("--only-report", action="store_true", help="only write the report from stored outcomes")
    options = parser.parse_args(arguments)
    evidence = Evidence(options.evidence)
    if not options.only_report:
        options.out.mkdir(parents=True, exist_ok=True)
        # GRPO of all seeds first, then the next method: an interrupted comparison is complete for some methods.
        units = [
            (task, arm, METHOD_SEEDS[task][number])
            for arm in GATED
            for number in range(len(METHOD_SEEDS["maze"]))
            for task in METHODS
        ]
        do_all(units, partial(_train, options.out, evidence), options.jobs)
    replace_results(options.report, list(parts(evidence)))
    return 0


def comparisons(evidence: Evidence) -> Iterator[Comparison]:
    """Yield the comparison of each task, with the methods that have outcomes."""
    for task, plan in METHODS.items():
        begun = [arm for arm in GATED if any(evidence.has(plan, arm, seed) for seed in METHOD_SEEDS[task])]
        gated = [arm for arm in begun if all(evidence.has(plan, arm, seed) for seed in METHOD_SEEDS[task])] or begun
        if not gated:
            continue
        names = {"base", *(arm.name for arm in gated), *(arm.name.removesuffix("_unsolved") for arm in gated)}
        arms = [arm for arm in (*ARMS, *GATED) if arm.name in names]
        predictions = tuple(each for each in PREDICTIONS if {each.a, each.b} <= names)
        yield Comparison(plan, METHOD_SEEDS[task], tuple(arms), predictions, evidence)


def parts(evidence: Evidence) -> Iterator[str]:
    """Yield the parts of the report."""
    for comparison in comparisons(evidence):
        if not comparison.complete:
            continue
        yield f"## {comparison.plan.task}"
        missing = [seed for seed in comparison.seeds if seed not in comparison.complete]
        if missing:
            yield f"**Not complete yet**: training seeds {', '.join(map(str, missing))} are missing."
        yield comparison.verdicts()
        yield comparison.table()


def _train(folder: Path, evidence: Evidence, unit: tuple[str, TrainingArm, int]) -> str:
    from speciate.training.recipe import BASES, ensure_base, train_policy

    task, arm, seed = unit
    plan, base, policy = METHODS[task], folder / f"{task}-base-{seed}", folder / f"{task}-{arm.name}-{seed}"
    if not evidence.has(plan, arm, seed):
        ensure_base(GENERATED[task], replace(BASES[task], seed=seed), base)
        if not (policy / MANIFEST).is_file():
            config = replace(arm.config(task, seed), unsolved_only=True)
            train_policy(GENERATED[task], config, base, policy, resume=policy.is_dir())
        evaluate(evidence, plan, arm, seed, policy)
    return f"{policy.name} is complete"


if __name__ == "__main__":
    raise SystemExit(main())
