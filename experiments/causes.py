"""Find out when training for a set pays: take away its two conditions, one at a time (``make causes``).

On ``programs`` VPO unlocks 9.9 points more than GRPO in eight training seeds (``docs/evidence/methods.md``). Here the
same trainings lack one thing each: the demonstrations of sets in the base, or the trade-off between the rewards, whose
components are all replaced by their mean. Steps with a stored result are skipped: an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from experiments.reproduction.answers import AnswerPool, LocalPolicy, independent
from experiments.reproduction.arms import ARMS, METHOD_SEEDS, METHODS, TrainingArm
from experiments.reproduction.evidence import ArmOutcome, Evidence, Mode, outcome_of, problems_of
from experiments.reproduction.report import p_text, replace_results, spread
from speciate.domain.problem import Problem
from speciate.policies.manifest import MANIFEST, read_manifest, weights_digest
from speciate.tournaments.statistics.methods import MethodTest, compare_methods
from speciate.tournaments.statistics.significance import holm
from speciate.training.tasks import GENERATED
from speciate.training.tasks.programs import ProgramsTask

PLAN: Final = METHODS["programs"]
SEEDS: Final = METHOD_SEEDS["programs"]
"""Training seeds, those of the comparison of methods, so that its runs are the controls."""

PUBLISHED: Final = {arm.name: arm for arm in ARMS if arm.name in ("base", "grpo", "vpo")}
BASE_WITHOUT_SETS: Final = TrainingArm("base_without_sets", "base", "base without demonstrations of sets")
NEW: Final = (
    BASE_WITHOUT_SETS,
    TrainingArm("grpo_without_sets", "grpo", "GRPO, base without demonstrations of sets"),
    TrainingArm("vpo_without_sets", "vpo", "VPO, base without demonstrations of sets"),
    TrainingArm("vpo_collinear", "vpo", "VPO, all rewards replaced by their mean"),
)
_BY_NAME: Final = PUBLISHED | {arm.name: arm for arm in NEW}


@dataclass(frozen=True, slots=True)
class Prediction:
    """A difference between two arms, predicted before any of the new arms was trained.

    Attributes:
        text: The prediction.
        a: Arm whose share of targets met is the minuend.
        b: The subtrahend.
        positive: Whether the difference is predicted to be positive; otherwise at most ``VANISHED``.
    """

    text: str
    a: str
    b: str
    positive: bool


VANISHED: Final = 0.033
"""A third of the published lead: differences up to this count as vanished, whatever their p."""

PREDICTIONS: Final = (
    Prediction("Without a trade-off VPO loses its lead over GRPO", "vpo_collinear", "grpo", positive=False),
    Prediction("… since the trade-off is what it learns from", "vpo", "vpo_collinear", positive=True),
    Prediction(
        "Without demonstrated sets VPO loses its lead over GRPO",
        "vpo_without_sets",
        "grpo_without_sets",
        positive=False,
    ),
    Prediction("… since it has to write sets first", "vpo", "vpo_without_sets", positive=True),
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
    given = parser.parse_args(arguments)
    evidence = Evidence(given.evidence)
    if not given.only_report:
        make_all(given.out, evidence, given.jobs)
    replace_results(given.report, list(parts(evidence)))
    return 0


def make_all(folder: Path, evidence: Evidence, jobs: int) -> None:
    """Train and evaluate the new arms, seed by seed: a part of them is balanced."""
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the processes below, which have not imported numpy yet
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        begun = [pool.submit(partial(_make, folder, evidence), seed) for seed in SEEDS]
        for done in as_completed(begun):
            console.print(f"seed {done.result()} is complete")


def _make(folder: Path, evidence: Evidence, seed: int) -> int:
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import BASES, ensure_base, train_policy

    task, place = GENERATED["programs"], partial(_place, folder, seed)
    for arm in NEW:
        if evidence.has(PLAN, arm, seed):
            continue
        base = "base" if arm.name == "vpo_collinear" else BASE_WITHOUT_SETS.name
        config = replace(BASES["programs"], seed=seed, sets=base == "base")
        ensure_base(task, config, place(base))
        if arm is not BASE_WITHOUT_SETS and not (place(arm.name) / MANIFEST).is_file():
            rewarded = CollinearTask("programs", hidden=(3, 4), shown=3) if arm.name == "vpo_collinear" else task
            recipe = TrainConfig.tiny(arm.method, "programs", seed=seed)
            train_policy(rewarded, recipe, place(base), place(arm.name), resume=place(arm.name).is_dir())
        policy, problems = LocalPolicy(place(arm.name)), problems_of(PLAN)
        pools: dict[Mode, AnswerPool] = {"independent": independent(policy, task, problems, PLAN.answers, seed)}
        manifest, digest = read_manifest(place(arm.name)), weights_digest(place(arm.name))
        evidence.keep(PLAN, arm, outcome_of(PLAN, arm, seed, manifest, digest, pools))
    return seed


def _place(folder: Path, seed: int, arm: str) -> Path:
    return folder / f"{arm}-{seed}"


def parts(evidence: Evidence) -> Iterator[str]:
    """Yield the parts of the report."""
    complete = [seed for seed in SEEDS if all(evidence.has(PLAN, arm, seed) for arm in _BY_NAME.values())]
    if len(complete) < len(SEEDS):
        yield f"**Not complete yet**: training seeds {', '.join(map(str, complete)) or 'none'} of {len(SEEDS)}."
    if not complete:
        return
    tests = {prediction: _test(evidence, prediction, complete) for prediction in PREDICTIONS}
    yield "## Results"
    yield _verdicts(tests, complete)
    yield "## Arms"
    yield _arms(evidence, complete)


def _test(evidence: Evidence, prediction: Prediction, seeds: Sequence[int]) -> MethodTest:
    a, b = ([_met(evidence, name, seed) for seed in seeds] for name in (prediction.a, prediction.b))
    return compare_methods(np.array(a, float), np.array(b, float), np.random.default_rng(0), paired=True)


def _met(evidence: Evidence, arm: str, seed: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return _outcome(evidence, arm, seed).met["independent"].within(PLAN.within)


def _outcome(evidence: Evidence, arm: str, seed: int) -> ArmOutcome:
    outcome = evidence.read(PLAN, _BY_NAME[arm], seed)
    assert outcome is not None  # noqa: S101 - only complete seeds are read
    return outcome


def _verdicts(tests: dict[Prediction, MethodTest], seeds: Sequence[int]) -> str:
    adjusted = holm([test.p_value for test in tests.values()]).tolist()
    rows = [
        "| prediction | arms | targets met | difference, 95 % interval | seeds ahead | p | Holm p | |",
        "|---" * 8 + "|",
    ]
    for (prediction, test), p in zip(tests.items(), adjusted, strict=True):
        holds = test.difference > 0 and p < 0.05 if prediction.positive else test.difference <= VANISHED
        verdict = "holds" if holds else "**does not hold**"
        if len(seeds) < len(SEEDS):
            verdict += ", so far"
        interval = "" if test.low is None or test.high is None else f" [{100 * test.low:+.1f}, {100 * test.high:+.1f}]"
        cells = (
            prediction.text,
            f"{_BY_NAME[prediction.a].label} − {_BY_NAME[prediction.b].label}",
            f"{100 * np.mean(test.rates_a):.1f} % : {100 * np.mean(test.rates_b):.1f} %",
            f"{100 * test.difference:+.1f} %{interval}",
            f"{test.wins} of {len(seeds)}",
            p_text(test.p_value),
            p_text(p),
            verdict,
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _arms(evidence: Evidence, seeds: Sequence[int]) -> str:
    heads = ("arm", "met within 30", f"within {PLAN.within}", "best@1", "diversity, valid", "entropy", "tokens of 30")
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in _BY_NAME.values():
        outcomes = [_outcome(evidence, arm.name, seed) for seed in seeds]
        met = [outcome.met["independent"] for outcome in outcomes]
        measured = [outcome.measured for outcome in outcomes]
        cells = (
            spread([float(hits.within(30).sum()) for hits in met], 0),
            spread([float(hits.within(PLAN.within).sum()) for hits in met], 0),
            f"{np.mean([each.best[0] for each in measured]):.3f}",
            f"{np.mean([each.diversity_valid for each in measured]):.2f}",
            f"{np.mean([each.entropy for each in measured]):.2f}",
            f"{np.mean([each.tokens for each in measured]):.0f}",
        )
        rows.append(f"| {arm.label} | {' | '.join(cells)} |")
    intro = (
        f"Targets met of {PLAN.problems}, independent answers as trained: the mean over training runs, with the runs of"
        f" seeds {', '.join(map(str, seeds))} in brackets."
    )
    return f"{intro}\n\n" + "\n".join(rows)


if __name__ == "__main__":
    raise SystemExit(main())
