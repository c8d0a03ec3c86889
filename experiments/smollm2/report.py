"""Write the tables of the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from experiments.smollm2.plan import BASE, EVALUATIONS, KS, METHODS, PROBLEMS
from speciate.tournaments.statistics.estimators import best_at_k
from speciate.tournaments.statistics.significance import holm, mcnemar, sign_flips

_ARMS: Final = (BASE, *METHODS)
_SCORES: Final = (
    f"| policy | {' | '.join(f'best@{k}' for k in KS)} | unlocked | different vectors | tokens | seconds |\n"
    f"|---|{'---|' * (len(KS) + 4)}"
)
_SAMPLES: Final = (
    f"| policy | seed | {' | '.join(f'best@{k}' for k in KS)} | unlocked | readable | different vectors |\n"
    f"|---|{'---|' * (len(KS) + 4)}"
)
_PAIRS: Final = "| | unlocked more, points | p | p, Holm |\n|---|---|---|---|"
_TESTS: Final = "| policy | only base / only policy | p | p, Holm |\n|---|---|---|---|"


def scores_of(vectors: Iterable[Sequence[float] | None]) -> list[float]:
    """Return the mean reward of every answer; 0 for an answer that failed. Answers beyond the budget are left out."""
    return [0.0 if vector is None else float(np.mean(vector)) for vector in vectors][:EVALUATIONS]


def samples_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the table of what each training seed answers; an answer that is missing counts as one that failed.

    Args:
        lines: One mapping for each policy and problem: ``arm, seed, problem, vectors, tokens``.
    """
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for line in lines:
        found.setdefault((line["arm"], line["seed"]), []).append(line)
    rows = [
        f"| {arm} | {seed} | {_sampled(found[arm, seed])} |"
        for arm, seed in sorted(found, key=lambda each: (_ARMS.index(each[0]), each[1]))
    ]
    tests = [] if len({arm for arm, _ in found}) < 2 else ["", *_pairs_table(found)]
    return "\n".join([_SAMPLES, *rows, *tests]) + "\n" if rows else "Nothing was sampled.\n"


def _pairs_table(found: Mapping[tuple[str, int], Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return the rows of the differences between all policies in what their training seeds unlock on the average."""
    unlocked: dict[str, dict[str, list[bool]]] = {}
    for (arm, _), lines in found.items():
        for line in lines:
            unlocked.setdefault(arm, {}).setdefault(line["problem"], []).append(_unlocked(line))
    arms = [arm for arm in reversed(_ARMS) if arm in unlocked]
    pairs = list(combinations(arms, 2))
    differences = [
        [np.mean(unlocked[a][p]) - np.mean(unlocked[b][p]) for p in sorted(unlocked[a].keys() & unlocked[b].keys())]
        for a, b in pairs
    ]
    tests = sign_flips(differences, np.random.default_rng(0))
    adjusted = holm([test.p_value for test in tests])
    rows = [
        f"| {a} − {b} | {100 * float(np.mean(values)):+.1f} | {test.p_value:.2g} | {p:.2g} |"
        for (a, b), values, test, p in zip(pairs, differences, tests, adjusted, strict=True)
    ]
    return [_PAIRS, *rows]


def _unlocked(line: Mapping[str, Any]) -> bool:
    return any(vector is not None and min(vector) >= 1 for vector in line["vectors"][:EVALUATIONS])


def _sampled(lines: Sequence[Mapping[str, Any]]) -> str:
    scores = [(scores_of(line["vectors"]) + [0.0] * EVALUATIONS)[:EVALUATIONS] for line in lines]
    best = np.mean([best_at_k(each, list(KS)) for each in scores], axis=0)
    answers = [[vector for vector in line["vectors"][:EVALUATIONS] if vector is not None] for line in lines]
    unlocked = sum(map(_unlocked, lines))
    kinds = np.mean([len({tuple(vector) for vector in each}) for each in answers])
    read = np.mean([len(each) for each in answers]) / EVALUATIONS
    values = " | ".join(f"{value:.3f}" for value in best)
    return f"{values} | {unlocked} of {len(lines)} | {read:.0%} | {kinds:.1f}"


def report(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the tables over the problems that all policies have answered.

    Args:
        lines: One mapping for each run: ``arm, problem, vectors, unlocked, tokens, seconds``.
    """
    runs = {(line["arm"], line["problem"]): line for line in lines}
    whole = [p for p in dict.fromkeys(p for _, p in runs) if all((arm, p) in runs for arm in _ARMS)]
    head = f"{len(whole)} of {PROBLEMS} declared problems were answered by all policies.\n"
    if not whole:
        return head
    rows = [_scores(arm, [runs[arm, problem] for problem in whole]) for arm in _ARMS]
    unlocked = {arm: [bool(runs[arm, problem]["unlocked"]) for problem in whole] for arm in _ARMS}
    tables = [mcnemar(unlocked[BASE], unlocked[method]) for method in METHODS]
    adjusted = holm([table.p_value for table in tables])
    tests = [
        f"| {method} | {table.only_a} / {table.only_b} | {table.p_value:.2g} | {p:.2g} |"
        for method, table, p in zip(METHODS, tables, adjusted, strict=True)
    ]
    return "\n".join([head, _SCORES, *rows, "", _TESTS, *tests]) + "\n"


def _scores(arm: str, runs: Sequence[Mapping[str, Any]]) -> str:
    best = np.mean([best_at_k(scores_of(run["vectors"]), list(KS)) for run in runs], axis=0)
    unlocked = sum(bool(run["unlocked"]) for run in runs)
    kinds = np.mean([len({tuple(vector) for vector in run["vectors"] if vector is not None}) for run in runs])
    tokens, seconds = (sum(float(run[name]) for run in runs) for name in ("tokens", "seconds"))
    values = " | ".join(f"{value:.3f}" for value in best)
    return f"| {arm} | {values} | {unlocked} | {kinds:.1f} | {tokens:,.0f} | {seconds:,.0f} |"
