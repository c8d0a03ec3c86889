"""Write the report of the reproduction: results of the declared hypotheses, beside the published figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from experiments.learning.plan import solvable
from experiments.reproduction.arms import (
    ABLATIONS,
    ARMS,
    HYPOTHESES,
    PLANS,
    SEEDS,
    VARIANTS,
    Hypothesis,
    TaskPlan,
    TrainingArm,
)
from experiments.reproduction.evidence import KS, MODES, ArmOutcome, Bools, Evidence, Mode, problems_of
from experiments.svg import save_svg
from speciate.domain.arrays import FloatArray
from speciate.tournaments.statistics.estimators import best_at_k
from speciate.tournaments.statistics.significance import McNemar, holm, mcnemar, sign_flips
from speciate.training.tasks import GENERATED
from speciate.training.tasks.programs import ProgramsTask

_COLUMNS: Final = (
    "In the tables below *diversity* is the mean L1 distance between the rewards of two answers to a problem, both with"
    " a reward above 0. *Equal tokens* are independent answers until a problem has cost what 30 answers of the most"
    " talkative arm take on average. In brackets: targets that only evolution : only independent answers reach within"
    " 90, over all seeds; p over problems is below .001 unless it is given."
)
RESULTS_BEGIN: Final = "<!-- results: begin -->"
RESULTS_END: Final = "<!-- results: end -->"
"""A report's generated part stands between these lines; the rest is written by hand and kept."""


@dataclass(frozen=True)
class TaskResults:
    """Answers of every arm on one task.

    Attributes:
        plan: The task.
        seeds: Training seeds.
        read: Return the outcome of an arm and seed, or None if there is none.
    """

    plan: TaskPlan
    seeds: tuple[int, ...]
    read: Callable[[TaskPlan, TrainingArm, int], ArmOutcome | None]

    def outcome(self, arm: TrainingArm, seed: int) -> ArmOutcome | None:
        """Return the outcome of an arm and seed, or None."""
        return self.read(self.plan, arm, seed)

    def outcomes(self, arm: TrainingArm) -> list[ArmOutcome]:
        """Return the outcomes of an arm for all seeds that have one."""
        return [outcome for seed in self.seeds if (outcome := self.outcome(arm, seed)) is not None]

    def arms(self) -> list[TrainingArm]:
        """Return the arms that have an outcome for some seed."""
        known = (arm for arm in (*ARMS, *VARIANTS) if arm.name in self.plan.arms)
        return [arm for arm in known if self.outcomes(arm)]

    def token_ceiling(self) -> int:
        """Return the completion tokens that 30 answers of the most talkative arm take on average."""
        return round(max(one.measured.tokens for arm in self.arms() for one in self.outcomes(arm)))

    def both(self, better: str, worse: str) -> tuple[list[int], list[Bools], list[Bools]]:
        """Return the seeds for which two arms have outcomes, with the targets that each of them met."""
        one, other = (next(arm for arm in ARMS if arm.name == name) for name in (better, worse))
        found = [
            (seed, a.met["independent"].within(self.plan.within), b.met["independent"].within(self.plan.within))
            for seed in self.seeds
            if (a := self.outcome(one, seed)) is not None and (b := self.outcome(other, seed)) is not None
        ]
        return [s for s, _, _ in found], [a for _, a, _ in found], [b for _, _, b in found]


def write_report(evidence: Evidence, report: Path, plans: Sequence[TaskPlan], seeds: Sequence[int]) -> None:
    """Write the results between the markers of a report, and pictures beside it.

    Args:
        evidence: Answers of the arms.
        report: Markdown file; its text outside the markers is kept.
        plans: The tasks.
        seeds: Training seeds.
    """
    results = [result for plan in plans if (result := _results(evidence, plan, seeds)).arms()]
    parts = ["## Results", *_missing(results), _hypotheses(results), _COLUMNS]
    for result in results:
        picture = report.parent / "pictures" / f"reproduction-{result.plan.task}.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw(result, picture)
        parts += [f"## {result.plan.task}", f"![best@k and unlocks](pictures/{picture.name})", tables(result)]
    parts.append(_made_with(results, report))
    replace_results(report, parts)


def write_ablations(evidence: Evidence, report: Path, seeds: Sequence[int]) -> None:
    """Write the values of the variants of Vector Max-at-K beside their page; arguments as of ``write_report``."""
    replace_results(report, [_made_with([_results(evidence, ABLATIONS, seeds)], report)])


def replace_results(report: Path, parts: Sequence[str]) -> None:
    """Write the generated parts of a report between its markers."""
    head, _, rest = (report.read_text("utf-8") if report.is_file() else "").partition(RESULTS_BEGIN)
    kept = rest.partition(RESULTS_END)[2].strip()
    whole = (head.strip(), RESULTS_BEGIN, *parts, RESULTS_END, kept)
    report.write_text("\n\n".join(filter(None, whole)) + "\n", "utf-8")


def _results(evidence: Evidence, plan: TaskPlan, seeds: Sequence[int]) -> TaskResults:
    return TaskResults(plan, tuple(seeds), cache(evidence.read))


def _missing(results: Sequence[TaskResults]) -> list[str]:
    """Return a warning if the declared comparison is incomplete."""
    missing = [f"task `{name}`" for name in PLANS if name not in {result.plan.task for result in results}]
    missing += [
        f"`{result.plan.task}`: some or all arms of seeds {', '.join(map(str, seeds))}"
        for result in results
        if (seeds := [seed for seed in SEEDS if not _has_all_arms(result, seed)])
    ]
    return [f"**Not complete yet.** Missing: {'; '.join(missing)}."] if missing else []


def _has_all_arms(result: TaskResults, seed: int) -> bool:
    return all(result.outcome(arm, seed) for arm in ARMS if arm.name in result.plan.arms)


def _hypotheses(results: Sequence[TaskResults]) -> str:
    found = [(claim, r) for claim in HYPOTHESES for r in results if r.plan.task == claim.task]
    compared = [one for claim, result in found if (one := _compare(claim, result)) is not None]
    adjusted = holm([one.p_value for one in compared]).tolist()
    heads = (
        "claim",
        "difference",
        "p over problems",
        "Holm p",
        "seeds ahead",
        "only the first : only the second, per seed",
        "these checkpoints",
        "declared, pooled McNemar",
    )
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join(rows + [_hypothesis_row(one, p) for one, p in zip(compared, adjusted, strict=True)])


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Targets met by two arms, paired by training seed.

    Attributes:
        claim: What is compared.
        difference: Mean over seeds and targets of met by the better arm − met by the worse one.
        p_value: Two-sided p of the sign-flip test over problems.
        seeds: Exact McNemar test of each training seed.
        pooled: Likewise of all (problem, target, seed) pairs together.
    """

    claim: Hypothesis
    difference: float
    p_value: float
    seeds: tuple[McNemar, ...]
    pooled: McNemar

    @property
    def ahead(self) -> int:
        """Training seeds in which the first arm met more targets."""
        return sum(one.only_a > one.only_b for one in self.seeds)

    def verdict(self, p_value: float, level: float) -> str:
        """Return if the claim holds, given a p and its level."""
        large = self.difference > 0 and self.difference >= self.claim.margin
        holds = large and p_value < level and self.ahead == len(self.seeds)
        so_far = ", so far" * (len(self.seeds) < len(self.claim.seeds))
        return ("holds" if holds else "**does not hold**") + so_far


def _compare(claim: Hypothesis, result: TaskResults) -> _Comparison | None:
    seeds, better, worse = replace(result, seeds=claim.seeds).both(claim.better, claim.worse)
    if not seeds:
        return None
    differences = np.array(better, dtype=float) - np.array(worse)
    return _Comparison(
        claim,
        float(differences.mean()),
        _over_problems(differences, result.plan),
        tuple(mcnemar(a, b) for a, b in zip(better, worse, strict=True)),
        mcnemar(np.array(better).T, np.array(worse).T),
    )


def _over_problems(differences: FloatArray, plan: TaskPlan) -> float:
    """Return the p of the sign-flip test with the problem as the unit.

    Targets and seeds of a problem are dependent, so each problem counts as one mean.

    Args:
        differences: Shape (seeds, targets × problems).
        plan: The task.
    """
    rates = differences.mean(axis=0).reshape(-1, plan.problems).mean(axis=0)
    (flipped,) = sign_flips([rates], np.random.default_rng(0))
    return flipped.p_value


def _hypothesis_row(compared: _Comparison, adjusted: float) -> str:
    claim, pooled = compared.claim, compared.pooled
    cells = (
        claim.text,
        f"{100 * compared.difference:+.1f} %",
        p_text(compared.p_value),
        p_text(adjusted),
        f"{compared.ahead} of {len(compared.seeds)}",
        ", ".join(f"{one.only_a} : {one.only_b}" for one in compared.seeds),
        compared.verdict(adjusted, 0.05),
        f"p = {p_text(pooled.p_value)}: {compared.verdict(pooled.p_value, claim.p_value)}",
    )
    return f"| {' | '.join(cells)} |"


def tables(result: TaskResults) -> str:
    """Return the table of one task."""
    plan = result.plan
    total = plan.problems * len(plan.targets)
    intro = (
        f"{plan.problems} held-out problems, targets {', '.join(plan.targets)} ({total} in all), {plan.answers}"
        " answers for each. Means over training seeds."
    )
    parts = [intro]
    if isinstance(kind := GENERATED[plan.task], ProgramsTask):
        solved = sum(solvable(kind, problem) for problem in problems_of(plan))
        parts.append(f"An answer of the length that policies may write can solve {solved} of the {plan.problems}.")
    ceiling = result.token_ceiling()
    parts.append(f"Equal tokens: {ceiling} completion tokens.")
    return "\n\n".join([" ".join(parts), _summary(result, ceiling)])


def _summary(result: TaskResults, ceiling: int) -> str:
    heads = (
        *("arm", "best@1", "@30", "diversity", "entropy"),
        *("met within 30", "within 90", "equal tokens", "evolved", "the base mutates"),
    )
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for arm in result.arms():
        outcomes = result.outcomes(arm)
        cells = [f"{np.mean([measure(one) for one in outcomes]):.{digits}f}" for measure, digits in _MEASURES]
        independent = [one.met["independent"] for one in outcomes]
        cells += [f"{np.mean([hits.within(within).sum() for hits in independent]):.0f}" for within in (30, 90)]
        cells.append(f"{np.mean([hits.within_tokens(ceiling).sum() for hits in independent]):.0f}")
        cells += [_evolution(outcomes, mode, result.plan) for mode in ("evolved", "base_mutates")]
        rows.append(f"| {arm.label} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _evolution(outcomes: Sequence[ArmOutcome], mode: Mode, plan: TaskPlan) -> str:
    met, independent = (np.array([one.met[how].within(90) for one in outcomes]) for how in (mode, "independent"))
    pairs = mcnemar(met.T, independent.T)
    p = _over_problems(met.astype(float) - independent, plan)
    unsure = f", p = {p_text(p)}" if p >= 0.001 else ""
    return f"{met.sum(axis=1).mean():.0f} ({pairs.only_a} : {pairs.only_b}{unsure})"


def write_checkpoints(path: Path, outcomes: Sequence[ArmOutcome]) -> None:
    """Write one row per checkpoint: its digests, measures and targets met."""
    curves = [f"best@{k}" for k in KS] + [f"weighted@{k}" for k in KS]
    counts = [f"{mode}_{within}" for mode in MODES for within in (30, 90)]
    heads = ["task", "arm", "seed", "steps", "rollouts_by", "weights", "data", "tokens_of_30"]
    heads += ["diversity", "diversity_valid", "entropy", "repeats", *counts, *curves]
    rows = [",".join(heads)]
    for one in outcomes:
        measured = one.measured
        cells: list[object] = [one.task, one.arm, one.seed, one.steps, one.writer, one.weights[:12], one.data[:12]]
        cells += [measured.tokens, measured.diversity, measured.diversity_valid, measured.entropy, measured.repeats]
        cells += [one.met[mode].within(within).sum() for mode in MODES for within in (30, 90)]
        rows.append(",".join(map(str, [*cells, *measured.best, *measured.weighted])))
    path.write_text("\n".join(rows) + "\n", "utf-8")


def draw(result: TaskResults, path: Path) -> None:
    """Draw best@k and unlocks against answers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2), layout="constrained")
    best, weighted, met = figure.subplots(1, 3)
    for number, arm in enumerate(result.arms()):
        found = result.outcomes(arm)
        style = {
            "color": f"C{number % 10}",
            "label": arm.label,
            "linestyle": "--" if arm.group or arm.steps > 1 else "-",
        }
        best.plot(KS, np.mean([one.measured.best for one in found], axis=0), **style)
        weighted.plot(KS, np.mean([one.measured.weighted for one in found], axis=0), **style)
        met.plot(KS, np.mean([_unlock_curve(one) for one in found], axis=0), **style)
    best.set(title="best@k of the mean reward", xlabel="answers k", xscale="log")
    weighted.set(title="E_w[best@k], w ~ Dir(1)", xlabel="answers k", xscale="log")
    met.set(title="targets met within k answers", xlabel="answers k", xscale="log")
    met.legend(fontsize=7)
    save_svg(figure, path)


def p_text(p: float) -> str:
    """Return a p-value as text."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.1e}"


def spread(values: Sequence[float], digits: int) -> str:
    """Return a mean as text, with the single values in brackets."""
    if not values:
        return "–"
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({'/'.join(f'{v:.{digits}f}' for v in values)})"


def _unlock_curve(outcome: ArmOutcome) -> NDArray[np.float64]:
    """Return the expected number of targets that k answers meet, at ``KS``: best@k of the hits, in random order."""
    hits = np.arange(outcome.answers) < np.array(outcome.met["independent"].hits)[:, None]
    return np.asarray(best_at_k(hits.astype(np.float64), KS).sum(axis=0))


def _best_at(k: int) -> Callable[[ArmOutcome], float]:
    return lambda outcome: outcome.measured.best[KS.index(k)]


_MEASURES: Final[tuple[tuple[Callable[[ArmOutcome], float], int], ...]] = (
    *((_best_at(k), 3) for k in (1, 30)),
    (lambda outcome: outcome.measured.diversity_valid, 2),
    (lambda outcome: outcome.measured.entropy, 2),
)


def _made_with(results: Sequence[TaskResults], report: Path) -> str:
    return provenance([one for result in results for arm in result.arms() for one in result.outcomes(arm)], report)


def provenance(outcomes: Sequence[ArmOutcome], report: Path) -> str:
    """Write the values of all checkpoints beside a report; return the section with versions and a link to them."""
    path = report.with_suffix(".csv")
    write_checkpoints(path, outcomes)
    versions = sorted({", ".join(f"{name} {number}" for name, number in one.versions.items()) for one in outcomes})
    return (
        f"## Made with\n\n{'; '.join(versions)}. All values of each of the {len(outcomes)} checkpoints, with the"
        f" digests of weights and data, are in [{path.name}]({path.name}). Rollouts by transformers and by our engine"
        " are samples of the same distribution."
    )
