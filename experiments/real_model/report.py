"""Write the results of both plans into the page, from the stored answers alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from experiments.declared_runs import Line
from experiments.real_model.answers import FORMS, MISSING, REPEATED, UNREADABLE, Answers, read_answers
from experiments.real_model.plan import BASE, LABELS, PLANS, PRIMARY, SETS, WITHIN, Plan
from experiments.reproduction.report import p_text, replace_results, spread
from speciate.domain.arrays import FloatArray
from speciate.tournaments.statistics.estimators import best_at_k
from speciate.tournaments.statistics.methods import MethodTest, compare_methods

LEVEL: Final = 0.05
WARM_UP: Final = "warm-up.json"
_WEIGHTINGS: Final = 200
_PART: Final = 10
"""First and last updates of a training whose means the page shows."""


@dataclass(frozen=True)
class Run:
    """Stored answers of one trained policy, or of the base."""

    arm: str
    seed: int
    about: Line
    answers: Mapping[str, Answers]

    @property
    def asked(self) -> Answers:
        """The answers in the form of its training."""
        return self.answers[form_of(self.arm)]


def form_of(arm: str) -> str:
    return "sets" if arm in SETS else "singles"


def read_runs(folder: Path) -> list[Run]:
    """Return the stored runs in the order of arms and seeds."""
    runs = []
    for path in folder.glob("*.jsonl"):
        about, answers = read_answers(path)
        runs.append(Run(about["arm"], about["seed"], about, answers))
    return sorted(runs, key=lambda run: ([*LABELS].index(run.arm), run.seed))


def met_within(answers: Answers, count: int | FloatArray) -> FloatArray:
    """Return the expected number of targets that some answers to each problem meet, shape (N,).

    The answers are whole rollouts, drawn without replacement from all that were sampled; at least one.
    """
    hits = np.swapaxes((answers.rewards >= 1).any(axis=2), 1, 2)  # (N, k, R)
    rollouts = np.clip(np.asarray(count) // answers.rewards.shape[2], 1, hits.shape[2])
    counts = np.broadcast_to(rollouts, len(hits))
    return np.array([best_at_k(row, int(size)).sum() for row, size in zip(hits, counts, strict=True)])


def met_for_tokens(answers: Answers, ceiling: float) -> FloatArray:
    """Return the expected number of targets that rollouts of so many tokens meet, shape (N,)."""
    return met_within(answers, answers.rewards.shape[2] * ceiling / answers.tokens.mean(axis=1))


def compare(runs: Sequence[Run], a: str, b: str, kind: str = "within") -> MethodTest | None:
    """Return the exact permutation test over the training runs of two arms, of the share of targets met.

    Only seeds of which both arms have a run count.
    """
    by_seed = {(run.arm, run.seed): run for run in runs}
    seeds = [seed for arm, seed in by_seed if arm == a and (b, seed) in by_seed]
    if not seeds:
        return None
    ceiling = token_ceiling(runs)
    rates = [
        [_rates(by_seed[arm, seed].asked, ceiling if kind == "tokens" else None) for seed in seeds] for arm in (a, b)
    ]
    return compare_methods(rates[0], rates[1], np.random.default_rng(0), paired=False)


def _rates(answers: Answers, ceiling: float | None) -> FloatArray:
    met = met_within(answers, WITHIN) if ceiling is None else met_for_tokens(answers, ceiling)
    return np.asarray(met / answers.rewards.shape[3])


def token_ceiling(runs: Sequence[Run]) -> float:
    """Return the tokens that ``WITHIN`` answers of the wordiest primary arm take, or the fewest to any problem."""
    taken = [run.asked.tokens.mean() / run.asked.rewards.shape[2] for run in runs if run.arm in PRIMARY]
    # No arm may run out of sampled answers.
    return float(min(WITHIN * max(taken), *(run.asked.tokens.sum(axis=1).min() for run in runs)))


def verdict(test: MethodTest | None, declared: int) -> str:
    """Return the sentence that follows from the primary test, once the declared number of pairs is there."""
    if test is None:
        return "**No verdict yet**: no training seed has both VPO and GRPO."
    a, b = (100 * float(np.mean(rates)) for rates in (test.rates_a, test.rates_b))
    runs = len(test.rates_a)
    figures = (
        f"VPO meets {a:.1f} % of the targets within {WITHIN} answers and GRPO {b:.1f} % ({100 * test.difference:+.1f}"
        f" points, {runs} : {runs} training runs, exact p = {p_text(test.p_value)}, least possible"
        f" {p_text(test.smallest_p)})"
    )
    if runs < declared:
        return f"**No verdict yet, {runs} of {declared} declared pairs of trainings.** So far {figures}."
    if test.p_value > LEVEL:
        side = "The prediction does not hold: no difference is shown"
        return f"**{side}.** {figures}."
    if test.difference > 0:
        return f"**VPO is ahead of GRPO, as predicted.** {figures}."
    return f"**VPO is behind GRPO: the prediction fails.** {figures}."


def write_page(page: Path, evidence: Path) -> None:
    """Write the results of both plans; the rest of the page is written by hand and kept."""
    replace_results(page, [part for plan in PLANS.values() for part in parts(plan, evidence / plan.name)])


def parts(plan: Plan, folder: Path) -> Iterator[str]:
    """Yield the results of a plan."""
    yield f"## Results, plan `{plan.name}`"
    warm_up = folder / WARM_UP
    if not warm_up.is_file():
        yield "Not run yet."
        return
    measured = json.loads(warm_up.read_text("utf-8"))
    yield _warm_up(measured)
    runs = read_runs(folder)
    if not any(run.arm in PRIMARY for run in runs):
        yield "No policy is trained yet." if measured["passed"] else "**The gate was missed, so nothing was trained.**"
        return
    yield " ".join(
        [verdict(compare(runs, *PRIMARY), plan.runs[PRIMARY[0]]), *(_base(run) for run in runs if run.arm == BASE)]
    )
    yield _arms(plan, runs)
    yield _answers(runs)
    if any(len(run.answers) > 1 for run in runs):
        yield _other_form(runs)
    yield _trainings(runs)
    yield _provenance(runs)


def _base(base: Run) -> str:
    met = 100 * _rates(base.asked, None).mean()
    return f"The warmed base, which no reward has trained, meets {met:.1f} %; the test does not compare it."


def _warm_up(measured: Line) -> str:
    rows = [
        "| updates | readable slots | whole sets | one target met by a single answer | right, sets : singles |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {one['step']:.0f} | {one['readable']:.0%} | {one['whole']:.0%} | {one['success']:.3f}"
        f" | {one['ratio']:.2f} |"
        for one in measured["measured"]
    ]
    return f"Warm-up: the gate is {'passed' if measured['passed'] else 'missed'}.\n\n" + "\n".join(rows)


def _by_arm(runs: Sequence[Run]) -> dict[str, list[Run]]:
    return {arm: mine for arm in LABELS if (mine := [run for run in runs if run.arm == arm])}


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _arms(plan: Plan, runs: Sequence[Run]) -> str:
    ceiling = token_ceiling(runs)
    ks = (3, 9, WITHIN, plan.answers)
    rows = []
    for arm, mine in _by_arm(runs).items():
        met = [spread([float(met_within(run.asked, k).sum()) for run in mine], 1) for k in ks]
        equal = spread([float(met_for_tokens(run.asked, ceiling).sum()) for run in mine], 1)
        gain = spread([weighted_gain(run.asked) for run in mine], 3)
        rows.append([LABELS[arm], *met, equal, gain])
    total = plan.problems * 3
    test = compare(runs, *PRIMARY, kind="tokens")
    note = (
        f"Targets met of {total}, in expectation over the order of the rollouts: the mean over training runs, the runs"
        f" in brackets. Equal tokens: {ceiling:.0f}, for which every arm has answers to every problem"
    )
    if test is not None:
        note += f" (VPO − GRPO {100 * test.difference:+.1f} points, p = {p_text(test.p_value)})"
    heads = ["arm", *(f"within {k}" for k in ks), "equal tokens", "E_w gain"]
    return f"{note}. E_w gain: best answer for a random weighting minus best mean reward.\n\n{_table(heads, rows)}"


def weighted_gain(answers: Answers) -> float:
    """Return E_w of the best wᵀr of all answers, w ~ Dir(1), minus their best mean reward; the mean over problems."""
    k = answers.rewards.shape[3]
    weightings = np.random.default_rng(0).dirichlet(np.ones(k), _WEIGHTINGS)
    pool = answers.rewards.reshape(len(answers.rewards), -1, k)
    best = (pool @ weightings.T).max(axis=1).mean(axis=1)
    return float((best - pool.mean(axis=2).max(axis=1)).mean())


def _answers(runs: Sequence[Run]) -> str:
    rows = []
    for arm, mine in _by_arm(runs).items():
        asked = [run.asked for run in mine]
        right = spread([100 * float((one.rewards >= 1).any(axis=3).mean()) for one in asked], 1)
        shares = [
            spread([100 * float((one.signs == sign).mean()) for one in asked], 1)
            for sign in (MISSING, REPEATED, UNREADABLE)
        ]
        tokens = spread([float(one.tokens.mean()) / one.rewards.shape[2] for one in asked], 1)
        rows.append([LABELS[arm], right, *shares, tokens])
    heads = ["arm", "right answers, %", "missing, %", "repeated in a set, %", "unreadable, %", "tokens an answer"]
    return _table(heads, rows)


def _other_form(runs: Sequence[Run]) -> str:
    heads = ["asked for", *(f"{form}: within {k}" for form in FORMS for k in (3, WITHIN))]
    rows = []
    for arm, mine in _by_arm(runs).items():
        if all(len(run.answers) == len(FORMS) for run in mine):
            met = [
                spread([float(met_within(run.answers[form], k).sum()) for run in mine], 1)
                for form in FORMS
                for k in (3, WITHIN)
            ]
            rows.append([LABELS[arm], *met])
    return _table(heads, rows)


def _trainings(runs: Sequence[Run]) -> str:
    names = ("mean", "best_weighted", "answered", "entropy")
    heads = ["arm", *(f"{name}, first → last {_PART}" for name in names), "minutes"]
    rows = []
    for arm, mine in _by_arm([run for run in runs if run.arm != BASE]).items():
        curves = [[run.about["curve"][name] for run in mine] for name in names]
        parts = (slice(None, _PART), slice(-_PART, None))
        ends = [[np.mean([curve[part] for curve in each]) for part in parts] for each in curves]
        cells = [f"{first:.3f} → {last:.3f}" for first, last in ends]
        rows.append([LABELS[arm], *cells, spread([run.about["minutes"] for run in mine], 0)])
    return f"Trainings, means over runs; rewards of a missing answer are 0.\n\n{_table(heads, rows)}"


def _provenance(runs: Sequence[Run]) -> str:
    versions = sorted({", ".join(f"{name} {text}" for name, text in run.about["versions"].items()) for run in runs})
    bases = sorted({run.about["base"][:12] for run in runs})
    trained = sum(run.arm != BASE for run in runs)
    return f"{trained} trained policies from the warmed base {', '.join(bases)}. Made with {'; '.join(versions)}."
