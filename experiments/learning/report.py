"""Compare learning arms with the frozen one: the training seed is the unit, with the paired test beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.learning.plan import ARMS, FROZEN, TASKS
from speciate.tournaments.statistics.significance import mcnemar, sign_flips

RESULTS: Final = "## Results\n"
"""Heading under which a page holds the results, to its end."""
_HEAD: Final = (
    "| task | equal | arm | runs | unlocked | minus frozen, by seed | p, seeds | only frozen / only learning |"
    " p, pairs | steps | seconds of learning |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def report(results: Iterable[Mapping[str, Any]]) -> str:
    """Return the tables of finished runs as Markdown.

    Args:
        results: One mapping for each run: ``task, problem, arm, seed, parity, unlocked, steps, learning_s``.
    """
    found = list(results)
    lines = [_HEAD]
    for task, parity in sorted({(r["task"], r["parity"]) for r in found}):
        mine = [r for r in found if (r["task"], r["parity"]) == (task, parity)]
        frozen = {(r["problem"], r["seed"]): bool(r["unlocked"]) for r in mine if r["arm"] == FROZEN}
        lines += [_row(task, parity, arm, [r for r in mine if r["arm"] == arm], frozen) for arm in ARMS]
    return "\n".join(lines) + "\n"


def write_results(page: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Replace the results of a page by those of finished runs; how many were done of those declared is in front."""
    declared, _, _ = page.read_text("utf-8").partition(RESULTS)
    first = sorted({(r["task"], r["problem"]) for r in results})
    counts = ", ".join(f"{sum(t == task for t, _ in first)} problems of {task}" for task in TASKS)
    seeds = len({r["seed"] for r in results})
    parities = " and ".join(sorted({r["parity"] for r in results}))
    declared_runs = 2 * 100 * 3 * 2 * len(ARMS)
    text = (
        f"{len(results):,} of the {declared_runs:,} declared runs are done: {counts}, {seeds} of 3 seeds, at equal"
        f" {parities}. The rest has not been run, and so few problems decide nothing.\n"
    )
    page.write_text(f"{declared.rstrip()}\n\n{RESULTS}\n{text}\n{report(results)}", "utf-8")


def _row(
    task: str, parity: str, arm: str, runs: list[Mapping[str, Any]], frozen: Mapping[tuple[str, int], bool]
) -> str:
    head = f"| {task} | {parity} | {arm} | {len(runs)} | {_share([bool(r['unlocked']) for r in runs])} |"
    # Only pairs whose both runs have ended are compared.
    pairs = [
        (r["seed"], bool(r["unlocked"]), frozen[r["problem"], r["seed"]])
        for r in runs
        if (r["problem"], r["seed"]) in frozen
    ]
    if arm == FROZEN or not pairs:
        return f"{head} – | – | – | – | – | – |"
    gains = [
        float(np.mean([learnt - still for s, learnt, still in pairs if s == seed]))
        for seed in sorted({s for s, _, _ in pairs})
    ]
    (test,) = sign_flips([gains], np.random.default_rng(0))
    table = mcnemar([still for _, _, still in pairs], [learnt for _, learnt, _ in pairs])
    steps, seconds = (sum(float(r[name]) for r in runs) for name in ("steps", "learning_s"))
    shown = ", ".join(f"{100 * gain:+.1f} %" for gain in gains)
    return (
        f"{head} {shown} | {test.p_value:.3g} | {table.only_a} / {table.only_b} | {table.p_value:.2g} | {steps:,.0f} |"
        f" {seconds:,.0f} |"
    )


def _share(unlocked: list[bool]) -> str:
    return f"{100 * float(np.mean(unlocked)):.1f} %" if unlocked else "–"
