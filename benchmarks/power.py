"""Error rate and power of each test, in simulated tournaments.

``python -m benchmarks power`` prints it; ``make power`` writes docs/evidence/power.md.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.parts import show
from speciate.settings import Settings
from speciate.tournaments.report.comparisons import compare, decided_after
from speciate.tournaments.report.models import Verdict
from speciate.tournaments.report.resamples import Resamples
from speciate.tournaments.report.results import Results
from speciate.tournaments.statistics.bootstrap import percentiles, resample_counts
from speciate.tournaments.statistics.methods import compare_methods, smallest_p
from speciate.tournaments.statistics.significance import mcnemar, sign_flips
from tests.unit.tournaments.simulated import methods, tournament
from tests.unit.tournaments.synthetic import schedule_of

NULLS: Final = 2000
EFFECTS: Final = 500
PROBLEMS, SEEDS = 40, 8
PAGE: Final = Path(__file__).parents[1] / "docs" / "evidence" / "power.md"
_CASES: Final = (
    ("none", 0.0, 0.0, NULLS),
    ("none on average, ±2 logits by problem", 0.0, 2.0, NULLS),
    ("¼ logit", 0.25, 0.0, EFFECTS),
    ("½ logit", 0.5, 0.0, EFFECTS),
    ("1 logit", 1.0, 0.0, EFFECTS),
)
_COLUMNS: Final = (
    "true effect", "tournaments", "sign flips at the end", "e-process, looked at after every problem",
    "its median of problems", "McNemar on unlock sets", "McNemar over seeds",
)  # fmt: skip

NOISE: Final = 0.35
"""Standard deviation of the training runs of one method, in logits."""

TRAINING_SEEDS: Final = (3, 5, 8, 10)
_SHIFTS: Final = ((0.0, "none"), (0.25, "¼ logit"), (0.5, "½ logit"), (1.0, "1 logit"))
_METHOD_NULLS: Final = (
    ("do not differ", 0.0, 0.0),
    ("differ by 0.15 logits", 0.15, 0.0),
    (f"differ by {NOISE} logits", NOISE, 0.0),
    (f"differ by {NOISE} logits, pairs share a base that differs by as much", NOISE, NOISE),
)
_METHOD_COLUMNS: Final = (
    "training runs of one method", "paired, over training runs", "unpaired, over training runs",
    "sign flips over problems, one run of each", "the same, all runs pooled", "McNemar, all runs pooled",
)  # fmt: skip
_POWER_COLUMNS: Final = (
    "training seeds of each method", "test", "smallest p", *(f"effect {name}" for _, name in _SHIFTS),
)  # fmt: skip

Row = tuple[str, ...]


def run(_: Settings) -> None:
    """Print all tables."""
    show(f"Rejections at α = 5 %, {PROBLEMS} problems × {SEEDS} seeds", list(_COLUMNS), [*table()], "null ≤ 5.5 %")
    show("Rejections of equal methods at α = 5 %", list(_METHOD_COLUMNS), [*method_nulls()], "over runs ≤ 5.5 %")
    show(f"Power over training runs that differ by {NOISE} logits", list(_POWER_COLUMNS), [*method_power()], "")
    show("Coverage of nominal 95 % bootstrap intervals", ["problems", "covered"], [*coverage()], "withheld below 30")


def table() -> list[Row]:
    """Return how often each test rejects, for every true effect; verdicts are those of the service's own report.

    Raises:
        AssertionError: A true null is rejected too often by a test that decides.
    """
    return [_case(*case) for case in _CASES]


def _case(name: str, shift: float, spread: float, times: int) -> Row:
    rng = np.random.default_rng([40, int(100 * shift), int(100 * spread)])
    fixed, sequential = (schedule_of(PROBLEMS, SEEDS, 2, stopping=rule) for rule in ("fixed", "e_process"))
    seen, stops = np.zeros(4), []
    for _ in range(times):
        a, b = tournament(rng, shift, spread)
        results = _results(a, b, Results.empty(fixed))
        # Another seed of the declaration's random numbers each time: a fixed set of sign patterns would be one draw.
        schedule = fixed.model_copy(
            update={"declared": fixed.declared.model_copy(update={"seeds": (*range(7), int(rng.integers(8, 2**40)))})}
        )
        (verdict,) = compare(schedule, (), results, schedule.problems, Resamples(schedule))
        stopped = decided_after(sequential, results)
        seen += (
            verdict.verdict in (Verdict.BETTER, Verdict.WORSE),
            stopped is not None,
            mcnemar(a.any(axis=1), b.any(axis=1)).p_value <= 0.05,
            mcnemar(a, b).p_value <= 0.05,
        )
        if stopped is not None:
            stops.append(stopped)
    shares = seen / times
    if shift == 0.0:
        assert max(shares[:2]) <= 0.055, f"{name}: a true null is rejected in {max(shares[:2]):.1%}"
    median = f"{np.median(stops):.0f}" if stops else "–"
    flips, process, sets, pooled = (f"{share:.1%}" for share in shares)
    return name, f"{times:,}", flips, process, median, sets, pooled


def method_nulls() -> list[Row]:
    """Return how often tests reject that two equal methods are equal, by how much their training runs differ.

    Raises:
        AssertionError: A test of methods rejects too often.
    """
    rows = []
    for i, (name, noise, base) in enumerate(_METHOD_NULLS):
        rng, seen = np.random.default_rng([41, i]), np.zeros(5)
        for _ in range(NULLS):
            a, b = methods(rng, 8, noise=noise, base=base)
            paired, unpaired = (compare_methods(a, b, rng, paired=paired).p_value for paired in (True, False))
            one, pooled = sign_flips([a[0] - b[0], a.mean(axis=0) - b.mean(axis=0)], rng, 2000)
            seen += np.array([paired, unpaired, one.p_value, pooled.p_value, mcnemar(a > 0, b > 0).p_value]) <= 0.05
        _check_level(name, seen[:2] / NULLS)
        rows.append((name, *(f"{share:.1%}" for share in seen / NULLS)))
    return rows


def method_power() -> list[Row]:
    """Return how often the tests of methods reject, by number of training seeds, test and effect.

    Raises:
        AssertionError: A true null is rejected too often.
    """
    rows = []
    for runs in TRAINING_SEEDS:
        found = np.array([_method_rejections(runs, shift) for shift, _ in _SHIFTS])
        _check_level(f"{runs} training seeds", found[0])
        for i, test in enumerate(("paired", "unpaired")):
            least = smallest_p(runs, runs, paired=test == "paired")
            rows.append((str(runs), test, f"{least:.2g}", *(f"{share:.1%}" for share in found[:, i])))
    return rows


def _method_rejections(runs: int, shift: float) -> np.ndarray:
    """Return the shares of rejections of the paired and of the unpaired test."""
    rng, seen, times = np.random.default_rng([42, runs, int(100 * shift)]), np.zeros(2), EFFECTS if shift else NULLS
    for _ in range(times):
        a, b = methods(rng, runs, shift, NOISE)
        seen += [compare_methods(a, b, rng, paired=paired).p_value <= 0.05 for paired in (True, False)]
    return np.asarray(seen / times)


def _check_level(name: str, shares: np.ndarray) -> None:
    assert max(shares) <= 0.055, f"{name}: a true null about methods is rejected in {max(shares):.1%}"


def _results(a: np.ndarray, b: np.ndarray, results: Results) -> Results:
    results.reached[..., 0], results.reached[..., 1] = b, a
    return replace(results, state=np.ones_like(results.state))


def coverage() -> list[Row]:
    """Return how often the percentile bootstrap of a mean difference covers the truth, by number of problems."""
    rows = []
    for problems in (30, 40, 100):
        rng, held = np.random.default_rng(problems), 0
        for _ in range(NULLS):
            a, b = tournament(rng)
            while len(a) < problems:
                more = tournament(rng)
                a, b = np.concatenate([a, more[0]]), np.concatenate([b, more[1]])
            values = (a.mean(axis=1) - b.mean(axis=1))[:problems]
            low, high = percentiles(resample_counts(problems, 400, rng) @ values / problems, 0.95)
            held += bool(low <= 0.0 <= high)
        rows.append((str(problems), f"{held / NULLS:.1%}"))
    return rows


def page() -> str:
    """Return docs/evidence/power.md."""
    found = table()
    effect = next(row for row in found if row[0].startswith("½"))
    covered, nulls, power = coverage(), method_nulls(), method_power()
    differing = next(row for row in nulls if row[0] == _METHOD_NULLS[2][0])
    return (
        "# Power: what can a tournament detect?\n\n"
        f"With {PROBLEMS} problems and {SEEDS} seeds the fixed test detects an effect of ½ logit in {effect[2]} of"
        f" tournaments, the e-process, which may be inspected at any time, in {effect[3]}.\n"
        f"Both keep their level of 5 % when policies are equal; {covered[1][1]} of nominal 95 % intervals cover the"
        " truth.\nMcNemar's test on unlock sets detects little, because the sets saturate: it shows *which* problems"
        " differ.\n\n"
        "Share of simulated tournaments in which a test rejects at α = 5 %:\n\n"
        f"{_markdown(_COLUMNS, found)}\n"
        "Coverage of nominal 95 % bootstrap intervals over problems, for a difference when every run has ended:\n\n"
        f"{_markdown(('problems', 'covered'), covered)}\n"
        "## Training methods\n\n"
        "These tests are about two checkpoints. If two *methods* are equal but their training runs differ, a test"
        f" over problems rejects the true null about the methods in {differing[3]} of tournaments with one run of each,"
        f" and in {differing[4]} with eight runs pooled. The [tests over training runs]"
        f"(../concepts/tournaments.md#checkpoints-and-methods) keep their level: {differing[1]} and {differing[2]}.\n\n"
        "Share of simulated tournaments in which a test rejects at α = 5 % although both methods are equal; 8 training"
        " runs of each:\n\n"
        f"{_markdown(_METHOD_COLUMNS, nulls)}\n"
        f"Power, with training runs of one method that differ by {NOISE} logits:\n\n"
        f"{_markdown(_POWER_COLUMNS, power)}\n"
        "## Method\n\n"
        "`make power` simulates the tournaments and writes this page. Each problem has its own difficulty (normal,"
        f" standard deviation 1.5 logits); each policy has {SEEDS} runs on each of {PROBLEMS} problems. Under `fixed`"
        " the sign-flip test decides, under `e_process` the e-process; the last two columns decide nothing.\n\n"
        f"Methods: each training run deviates from its method by a normal number of logits, the same on all {PROBLEMS}"
        f" problems, and is searched with {SEEDS} seeds. Shares come from {NULLS:,} simulations without an effect and"
        f" {EFFECTS:,} with one. Pooled tests take the mean rate of a problem over all runs; McNemar's counts (problem,"
        " training run) pairs that were solved at least once.\n"
    )


def _markdown(columns: Row, rows: list[Row]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
