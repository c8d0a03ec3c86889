"""Compare learning arms with the frozen one: the training seed is the unit, with the paired test beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.learning.plan import ARMS, CUTS, FROZEN, FROZEN_SETS, SETS, TASKS, Plan, number_of_jobs
from speciate.tournaments.statistics.significance import mcnemar, sign_flips

RESULTS: Final = "## Results\n"
"""Heading under which a page holds the results, to its end."""
Line = Mapping[str, Any]
Pair = tuple[int, bool, bool]
"""Seed, and whether the frozen policy and the other arm unlocked a problem."""
_TEST: Final = "difference by seed, % | mean | p, seeds | lost / gained | p, pairs |"
_SEARCH_HEAD: Final = f"| task | arm | pairs | frozen | this arm | {_TEST} processor seconds |\n|{'---|' * 11}"
_CAMPAIGN_HEAD: Final = (
    f"| task | within | arm | campaigns | beginning | end | {_TEST} processor seconds |\n|{'---|' * 12}"
)


def write_results(page: Path, plan: Plan, lines: Sequence[Line]) -> None:
    """Replace the results of a page by those of the finished jobs."""
    declared, _, _ = page.read_text("utf-8").partition(RESULTS)
    page.write_text(f"{declared.rstrip()}\n\n{RESULTS}\n{results(plan, lines)}", "utf-8")


def results(plan: Plan, lines: Sequence[Line]) -> str:
    """Return the results of the finished jobs as Markdown."""
    searches = [line for line in lines if line["kind"] == "search"]
    campaigns = [line for line in lines if line["kind"] == "campaign"]
    jobs, done = number_of_jobs(plan), len(searches) + len(campaigns)
    missing = "" if done == jobs else " The others are not, so the tables are no result yet."
    learning = [arm for arm in ARMS if ARMS[arm] is not None]
    return "\n".join(
        [
            f"{done:,} of {jobs:,} declared jobs are done, {_screened(lines)}.{missing}\n",
            f"### One problem, equal answers ({plan.answers})\n",
            _table(
                _SEARCH_HEAD, [_search_row(plan, searches, t, arm) for t in TASKS for arm in [FROZEN_SETS, *learning]]
            ),
            "### One problem, equal processor seconds\n",
            _table(
                _SEARCH_HEAD, [_search_row(plan, searches, t, arm, equal_time=True) for t in TASKS for arm in learning]
            ),
            _censored(plan, searches),
            "### Campaign: fresh problems unlocked by the policy of its beginning and of its end\n",
            _table(_CAMPAIGN_HEAD, [_campaign_row(campaigns, t, arm, CUTS[t]) for t in TASKS for arm in learning]),
        ]
    )


def _screened(lines: Iterable[Line]) -> str:
    found = [line["unlocked"] for line in lines if line["kind"] == "screening"]
    return f"and {sum(each is None for each in found):,} of {len(found):,} screened problems are hard"


def _table(head: str, rows: Sequence[str]) -> str:
    return "\n".join([head, *rows]) + "\n"


def _search_row(plan: Plan, lines: Iterable[Line], task: str, arm: str, *, equal_time: bool = False) -> str:
    frozen, mine = _paired(lines, task, arm)
    seconds = _allowance(mine)

    def unlocked(other: Line) -> bool:
        if equal_time:
            return other["unlocked"] is not None and float(other["seconds"]) <= seconds
        return other["unlocked"] is not None and int(other["unlocked"]) <= plan.answers

    pairs = [(int(each["seed"]), unlocked(frozen[_place(each)]), each["unlocked"] is not None) for each in mine]
    return _row(f"| {task} | {arm} | {len(pairs)} |", pairs, f"{seconds:.1f}")


def _place(line: Line) -> tuple[int, int]:
    return line["number"], line["seed"]


def _paired(lines: Iterable[Line], task: str, arm: str) -> tuple[dict[tuple[int, int], Line], list[Line]]:
    """Return the frozen searches of a task by problem and seed, and those of an arm that have one."""
    found = [line for line in lines if line["task"] == task]
    frozen = {_place(line): line for line in found if line["arm"] == FROZEN}
    return frozen, [line for line in found if line["arm"] == arm and _place(line) in frozen]


def _allowance(lines: Sequence[Line]) -> float:
    """Return the processor seconds of an arm's whole budget of answers: the median of the searches that spent it."""
    spent = [float(line["seconds"]) for line in lines if line["unlocked"] is None]
    return float(np.median(spent)) if spent else max((float(line["seconds"]) for line in lines), default=0.0)


def _censored(plan: Plan, lines: Sequence[Line]) -> str:
    count = 0
    for task in TASKS:
        for arm in ARMS:
            frozen, mine = _paired(lines, task, arm)
            count += sum(
                frozen[_place(each)]["unlocked"] is None and frozen[_place(each)]["seconds"] < _allowance(mine)
                for each in mine
            )
    return (
        f"In {count:,} pairs the frozen search had spent its {plan.patience * plan.answers:,} answers before that time,"
        " and counts as not unlocked.\n"
    )


def _campaign_row(lines: Iterable[Line], task: str, arm: str, cut: int) -> str:
    found = [line for line in lines if line["task"] == task]
    begun = {each["seed"]: each for each in found if each["arm"] == (FROZEN_SETS if arm in SETS else FROZEN)}
    mine = [each for each in found if each["arm"] == arm and each["seed"] in begun]
    pairs = [
        (int(each["seed"]), _within(before, cut), _within(after, cut))
        for each in mine
        for before, after in zip(begun[each["seed"]]["fresh"], each["fresh"], strict=True)
    ]
    seconds = float(np.mean([each["seconds"] for each in mine])) if mine else 0.0
    return _row(f"| {task} | {cut} | {arm} | {len(mine)} |", pairs, f"{seconds:.0f}")


def _within(answer: int | None, cut: int) -> bool:
    return answer is not None and answer <= cut


def _row(head: str, pairs: Sequence[Pair], seconds: str) -> str:
    if not pairs:
        return f"{head} – | – | – | – | – | – | – | – |"
    before, after = [pair[1] for pair in pairs], [pair[2] for pair in pairs]
    gains = [
        float(np.mean([int(b) - int(a) for s, a, b in pairs if s == seed])) for seed in sorted({s for s, _, _ in pairs})
    ]
    (test,) = sign_flips([gains], np.random.default_rng(0))
    table = mcnemar(before, after)
    by_seed = "/".join(f"{100 * gain:+.1f}" for gain in gains)
    return (
        f"{head} {_share(before)} | {_share(after)} | {by_seed} | {100 * float(np.mean(gains)):+.1f} % |"
        f" {test.p_value:.2g} | {table.only_a} / {table.only_b} | {table.p_value:.2g} | {seconds} |"
    )


def _share(unlocked: Sequence[bool]) -> str:
    return f"{100 * float(np.mean(unlocked)):.1f} %"
