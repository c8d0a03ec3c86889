"""Write the report on training methods, with the training run as the unit, and on controls of the comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np

from experiments.reproduction.arms import (
    ARMS,
    CONTROL_SEEDS,
    CONTROLS,
    METHOD_HYPOTHESES,
    METHOD_SEEDS,
    METHODS,
    RETRAINED,
    SAMPLING,
    SEEDS,
    MethodHypothesis,
    SamplingControl,
    TaskPlan,
    TrainingArm,
)
from experiments.reproduction.evidence import ArmOutcome, Evidence, TargetHits
from experiments.reproduction.report import TaskResults, p_text, provenance, replace_results, spread
from speciate.domain.arrays import FloatArray
from speciate.tournaments.statistics.methods import MethodTest, compare_methods
from speciate.tournaments.statistics.significance import holm

_LABELS: Final = {arm.name: arm.label for arm in (*ARMS, *CONTROLS)}
_SEED_FORMAT: Final = ("single", "sets")
"""Ways of sampling that change the answer format; the others change temperature and top-p."""


def write_methods(evidence: Evidence, report: Path) -> None:
    """Write the results between the markers of the report; its text outside the markers is kept."""
    parts = ["## Results", *_missing(evidence), _hypotheses(evidence)]
    for plan in METHODS.values():
        result = TaskResults(plan, METHOD_SEEDS[plan.task], cache(evidence.read))
        if not result.arms():
            continue
        parts += [f"## {plan.task}", _rates(result)]
        controls = _Controls(plan, CONTROL_SEEDS[plan.task], evidence)
        seeds = ", ".join(map(str, controls.seeds))
        parts += [
            "### Other trainings of GRPO",
            f"Here and below: means over training seeds {seeds}.",
            _trainings(controls),
        ]
        parts += ["### Temperature and top-p", _sweep(controls)]
        parts += ["### Format and objective", _formats(controls)]
    parts.append(provenance(list(_all_outcomes(evidence)), report))
    replace_results(report, parts)


def _all_outcomes(evidence: Evidence) -> Iterator[ArmOutcome]:
    for plan in METHODS.values():
        for arm in (*ARMS, *CONTROLS):
            for seed in METHOD_SEEDS[plan.task]:
                wanted = arm.name in plan.arms or (arm in CONTROLS and seed in CONTROL_SEEDS[plan.task])
                if wanted and (outcome := evidence.read(plan, arm, seed)) is not None:
                    yield outcome


def _missing(evidence: Evidence) -> list[str]:
    """Return a warning if the declared comparison is incomplete."""
    missing = []
    for plan in METHODS.values():
        arms = [arm for arm in ARMS if arm.name in plan.arms]
        open_ = [s for s in METHOD_SEEDS[plan.task] if not all(evidence.has(plan, arm, s) for arm in arms)]
        if open_:
            missing.append(f"`{plan.task}`: some or all arms of training seeds {', '.join(map(str, open_))}")
        controls = [*((a, evidence.has_controls) for a in arms), *((a, evidence.has) for a in RETRAINED)]
        left = [s for s in CONTROL_SEEDS[plan.task] if not all(has(plan, arm, s) for arm, has in controls)]
        if left:
            missing.append(f"`{plan.task}`: some or all controls of training seeds {', '.join(map(str, left))}")
    return [f"**Not complete yet.** Missing: {'; '.join(missing)}."] if missing else []


def _hypotheses(evidence: Evidence) -> str:
    heads = (
        "task",
        "claim",
        "mean share of targets met",
        "difference, 95 % interval",
        "seeds ahead",
        "p",
        "Holm p",
        "new seeds alone",
    )
    rows = [f"| {' | '.join(heads)} | |", "|---" * (len(heads) + 1) + "|"]
    for task in METHODS:
        claims = [claim for claim in METHOD_HYPOTHESES if claim.task == task]
        compared = {claim: found for claim in claims if (found := _compared(evidence, claim)) is not None}
        tests = {claim: test for claim, one in compared.items() if (test := one.test(METHOD_SEEDS[task])) is not None}
        if tests:
            adjusted = holm([test.p_value for test in tests.values()]).tolist()
            new = [seed for seed in METHOD_SEEDS[task] if seed not in SEEDS]
            rows += [_row(*one, p, compared[one[0]].test(new)) for one, p in zip(tests.items(), adjusted, strict=True)]
    return "\n".join(rows)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Shares of targets met by two methods, paired by training seed.

    Attributes:
        seeds: Training seeds of which both methods have a run.
        better: Targets met by each run, shape (seeds, targets × problems).
        worse: Likewise.
    """

    seeds: tuple[int, ...]
    better: FloatArray
    worse: FloatArray

    def test(self, seeds: Sequence[int]) -> MethodTest | None:
        """Return the exact sign-flip test over training seeds, of some of them, or None if there is none."""
        kept = [i for i, seed in enumerate(self.seeds) if seed in seeds]
        if not kept:
            return None
        return compare_methods(self.better[kept], self.worse[kept], np.random.default_rng(0), paired=True)


def _compared(evidence: Evidence, claim: MethodHypothesis) -> _Comparison | None:
    plan = METHODS[claim.task]
    seeds, better, worse = TaskResults(plan, METHOD_SEEDS[claim.task], cache(evidence.read)).both(
        claim.better, claim.worse
    )
    return _Comparison(tuple(seeds), np.array(better, float), np.array(worse, float)) if seeds else None


def _row(claim: MethodHypothesis, test: MethodTest, adjusted: float, new: MethodTest | None) -> str:
    seeds = len(test.rates_a)
    interval = "" if test.low is None or test.high is None else f" [{100 * test.low:+.1f}, {100 * test.high:+.1f}]"
    alone = f"{100 * new.difference:+.1f} %, p = {p_text(new.p_value)}" if new else "–"
    verdict = "holds" if adjusted < claim.p_value and test.difference > 0 else "**does not hold**"
    if seeds < len(METHOD_SEEDS[claim.task]):
        verdict += ", so far"
    cells = (
        claim.task,
        claim.text,
        f"{100 * np.mean(test.rates_a):.1f} % : {100 * np.mean(test.rates_b):.1f} %",
        f"{100 * test.difference:+.1f} %{interval}",
        f"{test.wins} of {seeds}",
        p_text(test.p_value),
        p_text(adjusted),
        alone,
        verdict,
    )
    return f"| {' | '.join(cells)} |"


def _rates(result: TaskResults) -> str:
    """Return the targets met by each method, seed by seed."""
    total, ceiling = result.plan.problems * len(result.plan.targets), result.token_ceiling()
    rows = ["| method | within 30 answers | within 90 | equal tokens | tokens of 30 answers |", "|---" * 5 + "|"]
    for arm in result.arms():
        met = [one.met["independent"] for one in result.outcomes(arm)]
        cells = [
            spread([float(one.within(30).sum()) for one in met], 0),
            spread([float(one.within(90).sum()) for one in met], 0),
            spread([float(one.within_tokens(ceiling).sum()) for one in met], 0),
            f"{np.mean([one.measured.tokens for one in result.outcomes(arm)]):.0f}",
        ]
        rows.append(f"| {arm.label} | {' | '.join(cells)} |")
    seeds = ", ".join(map(str, result.seeds))
    intro = (
        f"Targets met of {total}, independent answers as trained: the mean over training runs, with the single runs of"
        f" seeds {seeds} in brackets. Equal tokens: {ceiling} completion tokens."
    )
    return f"{intro}\n\n" + "\n".join(rows)


@dataclass(frozen=True)
class _Controls:
    """Outcomes of the controls on one task.

    Attributes:
        plan: The task.
        seeds: Training seeds of the controls.
        evidence: Folder of outcomes.
    """

    plan: TaskPlan
    seeds: tuple[int, ...]
    evidence: Evidence

    @property
    def arms(self) -> list[TrainingArm]:
        """The arms that are sampled in every way."""
        return [arm for arm in ARMS if arm.name in self.plan.arms]

    def met(self, arm: TrainingArm, way: SamplingControl, count: Callable[[TargetHits], int]) -> list[float]:
        """Return a count of targets met, for each seed with an outcome."""
        found = [self.evidence.read_controls(self.plan, arm, seed) for seed in self.seeds]
        return [float(count(one.met[way.name])) for one in found if one is not None]

    def tokens(self, arm: TrainingArm, way: SamplingControl) -> float:
        """Return the mean completion tokens of 30 answers; NaN without an outcome."""
        found = [self.evidence.read_controls(self.plan, arm, seed) for seed in self.seeds]
        return float(np.mean([one.tokens[way.name] for one in found if one is not None] or [np.nan]))


def _trainings(controls: _Controls) -> str:
    result = TaskResults(controls.plan, controls.seeds, cache(controls.evidence.read))
    wanted = [arm for arm in ARMS if arm.name in ("base", "grpo", "vpo")] + list(CONTROLS)
    rows = ["| training | best@1 | diversity, valid | entropy | met within 30 | within 90 |", "|---" * 6 + "|"]
    for arm in wanted:
        if not (found := result.outcomes(arm)):
            continue
        met = [one.met["independent"] for one in found]
        cells = [
            f"{np.mean([one.measured.best[0] for one in found]):.3f}",
            f"{np.mean([one.measured.diversity_valid for one in found]):.2f}",
            f"{np.mean([one.measured.entropy for one in found]):.2f}",
            f"{np.mean([one.within(30).sum() for one in met]):.0f}",
            f"{np.mean([one.within(90).sum() for one in met]):.0f}",
        ]
        rows.append(f"| {arm.label} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _sweep(controls: _Controls) -> str:
    ways = [way for way in SAMPLING if way.name not in _SEED_FORMAT]
    within = controls.plan.within
    rows = ["| arm | as trained | best way | met |", "|---" * 4 + "|"]
    for arm in controls.arms:
        means = [float(np.mean(controls.met(arm, way, partial(_within, within)) or [np.nan])) for way in ways]
        if not np.isnan(means).all():
            best = int(np.nanargmax(means))
            rows.append(f"| {arm.label} | {means[0]:.0f} | {ways[best].label} | {means[best]:.0f} |")
    note = f"Targets met within {within} answers as trained and in the best way, chosen on these problems."
    return f"{note}\n\n" + "\n".join(rows)


def _formats(controls: _Controls) -> str:
    by_name = {way.name: way for way in SAMPLING}
    single, sets = (by_name[name] for name in _SEED_FORMAT)
    tokens = [controls.tokens(arm, way) for arm in controls.arms for way in (single, sets)]
    ceiling = 0 if np.isnan(tokens).all() else round(np.nanmax(tokens))
    heads = [f"{way.label}: {what}" for way in (single, sets) for what in ("within 30", "within 90", "equal tokens")]
    rows = [f"| asked for | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    counts: tuple[Callable[[TargetHits], int], ...] = (
        partial(_within, 30),
        partial(_within, 90),
        lambda hits: int(hits.within_tokens(ceiling).sum()),
    )
    for arm in controls.arms:
        cells = [
            f"{np.mean(controls.met(arm, way, count) or [np.nan]):.0f}" for way in (single, sets) for count in counts
        ]
        rows.append(f"| {arm.label} | {' | '.join(cells)} |")
    return f"Equal tokens: {ceiling} completion tokens.\n\n" + "\n".join(rows)


def _within(answers: int, hits: TargetHits) -> int:
    return int(hits.within(answers).sum())
