"""The report of the reproduction: what was declared, what came out, next to the published figures."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.problem import Problem
from speciate.domain.rule import parse_rule
from speciate.policies.manifest import Manifest, read_manifest
from speciate.tournaments.estimators import best_at_k, diversity, expected_best_at_k
from speciate.tournaments.tests import mcnemar, mcnemar_pooled, sign_flip
from speciate.training.arms import ABLATIONS, ARMS, CLAIMS, PLANS, SEEDS, VARIANTS, Arm, Claim, Plan
from speciate.training.pictures import save_svg
from speciate.training.pools import Pool
from speciate.training.tasks import GROWN, Split
from speciate.training.versions import versions
from speciate.training.weightings import Sampler, draw_weightings

Read = Callable[[Plan, Arm, int, str], Pool | None]
Bools = NDArray[np.bool_]

DECLARED: Final = "<!-- results: begin -->"
"""What stands above this line in the report was written before any result, and is never changed by a run."""

_KS: Final = (1, 2, 3, 5, 8, 10, 15, 20, 30, 45, 60, 90)
_WEIGHTINGS: Final = 200
_MODES: Final = (("independent", "independent"), ("evolved", "evolved"), ("base_mutates", "the base mutates"))

_PAPER: Final = """
| best@30 on the training scalar (paper, one run each) | GRPO | Max-at-K | Multi-RLVR | VPO | diversity GRPO → VPO |
|---|---|---|---|---|---|
| maze, Qwen3-4B | 0.432 | 0.577 | 0.436 | 0.593 | 0.003 → 1.01 |
| MuSiQue, Qwen3-1.7B | 0.728 | 0.802 | 0.633 | 0.832 | 0.054 → 0.59 |
| EUREQA, Qwen3-8B | 0.236 | 0.237 | 0.267 | 0.279 | 0.119 → 0.51 |
| ToolRL, Qwen3-1.7B | 0.925 | 0.954 | 0.905 | 0.952 | 0.044 → 1.30 |
"""


@dataclass(frozen=True)
class Results:
    """Answers of every arm on one task.

    Attributes:
        plan: The task.
        seeds: Training seeds.
        read: Returns the answers of an arm, or None where there are none.
        folder: Where checkpoints lie.
    """

    plan: Plan
    seeds: tuple[int, ...]
    read: Read
    folder: Path

    def pool(self, arm: Arm, seed: int, mode: str = "independent") -> Pool | None:
        """Return an arm's answers."""
        return self.read(self.plan, arm, seed, mode)

    def arms(self) -> list[Arm]:
        """Return the arms that have answers for some seed."""
        known = (arm for arm in (*ARMS, *VARIANTS) if arm.name in self.plan.arms)
        return [arm for arm in known if any(self.pool(arm, seed) for seed in self.seeds)]

    def met(self, arm: Arm, seed: int, within: int, mode: str = "independent") -> Bools | None:
        """Return which targets were met within some answers, shape (N × targets,); None without answers."""
        pool = self.pool(arm, seed, mode)
        if pool is None:
            return None
        hits = [hits_of(self.plan, pool, target)[:, :within].any(axis=1) for target in self.plan.targets]
        return np.concatenate(hits)

    def both(self, better: str, worse: str) -> tuple[list[int], list[Bools], list[Bools]]:
        """Return the seeds for which two arms have answers, with what each of them met."""
        one, other = (next(arm for arm in ARMS if arm.name == name) for name in (better, worse))
        found = [
            (seed, a, b)
            for seed in self.seeds
            if (a := self.met(one, seed, self.plan.within)) is not None
            and (b := self.met(other, seed, self.plan.within)) is not None
        ]
        return [s for s, _, _ in found], [a for _, a, _ in found], [b for _, _, b in found]


def hits_of(plan: Plan, pool: Pool, target: str) -> Bools:
    """Return which answers meet a target, shape (N, n)."""
    (problem,) = _problems(plan, 1)
    rule = parse_rule(next(t.rule for t in problem.targets if t.name == target), problem.space.names)
    flat = pool.rewards.reshape(-1, pool.rewards.shape[2])
    return np.array([rule.holds(tuple(row)) for row in flat]).reshape(pool.rewards.shape[:2])


def write_report(folder: Path, report: Path, plans: Sequence[Plan], seeds: Sequence[int]) -> None:
    """Write the results under what was declared, with pictures beside the report.

    Args:
        folder: Checkpoints and answers.
        report: The Markdown file; its declared part is kept.
        plans: The tasks.
        seeds: Training seeds.
    """
    results = [result for plan in plans if (result := _results(folder, plan, seeds)).arms()]
    kept = report.read_text("utf-8").partition(DECLARED)[0] if report.is_file() else ""
    parts = [kept.rstrip(), DECLARED, "## What came out", *_what_is_missing(results), _claims(results)]
    for result in results:
        picture = report.parent / "pictures" / f"reproduction-{result.plan.task}.svg"
        picture.parent.mkdir(parents=True, exist_ok=True)
        draw(result, picture)
        parts += [f"## {result.plan.task}", f"![best@k and unlocks](pictures/{picture.name})", tables(result)]
    parts += ["## The paper's figures, for comparison", _PAPER.strip(), _made_with(results)]
    report.write_text("\n\n".join(parts) + "\n", "utf-8")


def write_ablations(folder: Path, report: Path, seeds: Sequence[int]) -> None:
    """Write how variants of Vector Max-at-K fare under what stands in the report already; arguments as above."""
    result = _results(folder, ABLATIONS, seeds)
    kept = report.read_text("utf-8").partition(DECLARED)[0] if report.is_file() else ""
    report.write_text("\n\n".join([kept.rstrip(), DECLARED, tables(result), _made_with([result])]) + "\n", "utf-8")


def _results(folder: Path, plan: Plan, seeds: Sequence[int]) -> Results:
    from speciate.training.reproduction import answers, read_answers

    @cache
    def read(plan: Plan, arm: Arm, seed: int, mode: str) -> Pool | None:
        path = answers(folder, plan, arm, seed, mode)
        return read_answers(path) if path.is_file() else None

    return Results(plan, tuple(seeds), read, folder)


def _what_is_missing(results: Sequence[Results]) -> list[str]:
    """Say what of the declared comparison is not there yet: a part of it is no result."""
    missing = [f"task `{name}`" for name in PLANS if name not in {result.plan.task for result in results}]
    for result in results:
        lacking = [s for s in SEEDS if not all(result.pool(arm, s) for arm in ARMS if arm.name in result.plan.arms)]
        if lacking:
            missing.append(f"`{result.plan.task}`: some or all arms of seeds {', '.join(map(str, lacking))}")
    return [f"**Not complete yet.** Missing: {'; '.join(missing)}."] if missing else []


def _claims(results: Sequence[Results]) -> str:
    heads = (
        "claim",
        "seeds",
        "only the first",
        "only the second",
        "difference",
        "McNemar p",
        "sign-flip p",
        "per seed",
    )
    rows = [f"| {' | '.join(heads)} | |", "|---" * (len(heads) + 1) + "|"]
    for claim in CLAIMS:
        result = next((r for r in results if r.plan.task == claim.task), None)
        if result is not None and (row := _claim_row(claim, result)):
            rows.append(row)
    return "\n".join(rows)


def _claim_row(claim: Claim, result: Results) -> str | None:
    seeds, better, worse = result.both(claim.better, claim.worse)
    if not seeds:
        return None
    pooled = mcnemar_pooled(np.array(better).T, np.array(worse).T)
    each = [mcnemar(a, b) for a, b in zip(better, worse, strict=True)]
    differences = np.mean(np.array(better, dtype=float) - np.array(worse), axis=0)
    flipped = sign_flip(differences, np.random.default_rng(0))
    share = (pooled.only_a - pooled.only_b) / (len(seeds) * len(better[0]))
    holds = share >= claim.margin and share > 0 and pooled.p_value < claim.p_value
    same_sign = all(one.only_a > one.only_b for one in each)
    verdict = "holds" if holds and same_sign else "holds pooled, not in each seed" if holds else "**does not hold**"
    if len(seeds) < len(SEEDS):
        verdict += ", so far"
    signs = ", ".join(f"{one.only_a} : {one.only_b}" for one in each)
    return (
        f"| {claim.text} | {len(seeds)} | {pooled.only_a} | {pooled.only_b} | {100 * share:+.1f} % |"
        f" {p_text(pooled.p_value)} | {p_text(flipped.p_value)} | {signs} | {verdict} |"
    )


def tables(result: Results) -> str:
    """Return the tables of one task."""
    plan = result.plan
    total = plan.problems * len(plan.targets)
    text = [
        (
            f"{plan.problems} held-out problems, targets {', '.join(plan.targets)} ({total} in all), {plan.answers}"
            " answers for each. Means over seeds, with the single seeds in brackets."
        )
    ]
    if hasattr(GROWN[plan.task], "solvable"):
        solvable = sum(GROWN[plan.task].solvable(p) for p in _problems(plan, plan.problems))  # type: ignore[attr-defined]
        text.append(f"An answer of the length that policies may write can solve {solvable} of the {plan.problems}.")
    head = "| arm | best@1 | @5 | @10 | @30 | @90 | E_w[best@30] | diversity, all | valid | entropy | repeats |"
    rows = [head, "|---|" + "---|" * 10]
    for arm in result.arms():
        pools = [pool for seed in result.seeds if (pool := result.pool(arm, seed)) is not None]
        rows.append(
            f"| {arm.label} | " + " | ".join(_spread([f(pool) for pool in pools], d) for f, d in _MEASURES) + " |"
        )
    text.append("\n".join(rows))
    columns = [(mode, within) for mode, _ in _MODES for within in (30, 90)]
    names = dict(_MODES)
    rows = ["| targets met within | " + " | ".join(f"{names[m]} {w}" for m, w in columns) + " | equal tokens |"]
    rows.append("|---|" + "---|" * (len(columns) + 1))
    ceiling = _token_ceiling(result)
    for arm in result.arms():
        cells = [_spread(_counts(result, arm, mode, within), 0) for mode, within in columns]
        cells.append(_spread([float(_within_tokens(result, arm, seed, ceiling)) for seed in result.seeds
                              if result.pool(arm, seed)], 0))  # fmt: skip
        rows.append(f"| {arm.label} | " + " | ".join(cells) + " |")
    text.append("\n".join(rows))
    text.append(
        f"*Equal tokens*: independent answers until a problem has cost {ceiling} completion tokens, what 30 answers of"
        " the most talkative arm take on average."
    )
    text.append(_evolution(result))
    return "\n\n".join(text)


def _evolution(result: Results) -> str:
    rows = [
        "| evolved against independent, 90 answers | only evolved | only independent | p | base mutates: only | p |"
    ]
    rows.append("|---|---|---|---|---|---|")
    for arm in result.arms():
        met = {mode: [result.met(arm, seed, 90, mode) for seed in result.seeds] for mode, _ in _MODES}
        alone = [m for m in met["independent"] if m is not None]
        pairs = {}
        for mode in ("evolved", "base_mutates"):
            found = [m for m in met[mode] if m is not None]
            if len(found) == len(alone):
                pairs[mode] = mcnemar_pooled(np.array(found).T, np.array(alone).T)
        if len(pairs) == 2:
            own, common = pairs["evolved"], pairs["base_mutates"]
            rows.append(
                f"| {arm.label} | {own.only_a} | {own.only_b} | {p_text(own.p_value)} |"
                f" {common.only_a} : {common.only_b} | {p_text(common.p_value)} |"
            )
    return "\n".join(rows)


def draw(result: Results, path: Path) -> None:
    """Draw best@k and unlocks against answers."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.2), layout="constrained")
    best, weighted, met = figure.subplots(1, 3)
    for number, arm in enumerate(result.arms()):
        pools = [pool for seed in result.seeds if (pool := result.pool(arm, seed)) is not None]
        style = {
            "color": f"C{number % 10}",
            "label": arm.label,
            "linestyle": "--" if arm.group or arm.steps > 1 else "-",
        }
        curves = np.array([_best_curve(pool) for pool in pools])
        best.plot(_KS, curves.mean(axis=0), **style)
        weighted.plot(_KS, np.mean([_weighted_curve(pool) for pool in pools], axis=0), **style)
        counts = np.mean([_unlock_curve(result.plan, pool) for pool in pools], axis=0)
        met.plot(_KS, counts, **style)
    best.set(title="best@k of the mean reward", xlabel="answers k", xscale="log")
    weighted.set(title="E_w[best@k], w ~ Dir(1)", xlabel="answers k", xscale="log")
    met.set(title="targets met within k answers", xlabel="answers k", xscale="log")
    met.legend(fontsize=7)
    save_svg(figure, path)


def p_text(p: float) -> str:
    """Return a p-value as it is written."""
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def _counts(result: Results, arm: Arm, mode: str, within: int) -> list[float]:
    found = [result.met(arm, seed, within, mode) for seed in result.seeds]
    return [float(met.sum()) for met in found if met is not None]


def _token_ceiling(result: Results) -> int:
    means = [
        float(pool.tokens[:, :30].sum(axis=1).mean())
        for arm in result.arms()
        for seed in result.seeds
        if (pool := result.pool(arm, seed)) is not None
    ]
    return round(max(means))


def _within_tokens(result: Results, arm: Arm, seed: int, ceiling: int) -> int:
    pool = result.pool(arm, seed)
    assert pool is not None  # noqa: S101 - asked for by the caller
    affordable = np.cumsum(pool.tokens, axis=1) <= ceiling
    met = [hits_of(result.plan, pool, target) & affordable for target in result.plan.targets]
    return sum(int(hits.any(axis=1).sum()) for hits in met)


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({', '.join(f'{v:.{digits}f}' for v in values)})"


def _best_curve(pool: Pool) -> NDArray[np.float64]:
    return np.asarray(best_at_k(pool.rewards.mean(axis=2), _KS).mean(axis=0))


def _weighted_curve(pool: Pool) -> NDArray[np.float64]:
    weights = _weights(pool.rewards.shape[2])
    return np.asarray(np.mean([expected_best_at_k(rewards, _KS, weights) for rewards in pool.rewards], axis=0))


def _unlock_curve(plan: Plan, pool: Pool) -> NDArray[np.float64]:
    hits = [hits_of(plan, pool, target).astype(np.float64) for target in plan.targets]
    return np.asarray(np.sum([best_at_k(one, _KS).sum(axis=0) for one in hits], axis=0))


def _weights(dimensions: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(0)
    return np.asarray(draw_weightings(1, _WEIGHTINGS, dimensions, alpha=1.0, sampler=Sampler.IID, rng=rng)[0])


def _diversity(pool: Pool, *, valid: bool) -> float:
    found = [diversity(rewards, rewards.max(axis=1) > 0) for rewards in pool.rewards]
    values = [one.valid if valid else one.every for one in found]
    return float(np.mean([value for value in values if value is not None]))


def _at(k: int) -> Callable[[Pool], float]:
    return lambda pool: float(best_at_k(pool.rewards.mean(axis=2), k).mean())


_MEASURES: Final[tuple[tuple[Callable[[Pool], float], int], ...]] = (
    *((_at(k), 3) for k in (1, 5, 10, 30, 90)),
    (lambda pool: float(_weighted_curve(pool)[_KS.index(30)]), 3),
    (lambda pool: _diversity(pool, valid=False), 2),
    (lambda pool: _diversity(pool, valid=True), 2),
    (lambda pool: float(np.average(pool.surprise, weights=pool.tokens)), 2),
    (lambda pool: float(pool.repeated.mean()), 2),
)


def _made_with(results: Sequence[Results]) -> str:
    found = ", ".join(f"{name} {number}" for name, number in versions().items())
    digests = []
    for result in results:
        for arm in result.arms():
            for seed in result.seeds:
                folder = result.folder / f"{result.plan.task}-{arm.name}-{seed}"
                if folder.is_dir() and result.pool(arm, seed) is not None:
                    manifest = read_manifest(folder)
                    line = f"{folder.name}: {manifest.steps} steps, data {manifest.data_digest[:12]}"
                    digests.append(f"{line}, {_writer(manifest)}" if arm.method != "base" else line)
    listed = "\n".join(f"- {line}" for line in digests)
    return (
        f"## Made with\n\nPython {platform.python_version()}, {found}. Rollouts are drawn from the same distribution by"
        " transformers and by the engine that serves the policy, which is quicker.\n\n"
        f"<details><summary>Checkpoints</summary>\n\n{listed}\n\n</details>"
    )


def _writer(manifest: Manifest) -> str:
    return "rollouts by the engine" if manifest.config.get("use_engine") else "rollouts by transformers"


@cache
def _problems(plan: Plan, count: int) -> tuple[Problem, ...]:
    return tuple(GROWN[plan.task].problems(Split.TEST, count, start=plan.start))
