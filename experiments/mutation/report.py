"""Find the improvements of a run, and write the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from experiments.mutation.plan import ARMS, PROBLEMS
from speciate.domain.problem import Problem

_HEAD: Final = (
    "| problem | arm | runs | evaluations | changes asked of | failed | improvements, by policy | last improvement at |"
    " best | tokens | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def improvements(problem: Problem, rewards: Sequence[Mapping[str, float] | None]) -> list[int]:
    """Return the positions of the candidates that became the best of their run, the first feasible one excluded.

    Args:
        problem: Ranks the candidates as a run does.
        rewards: Rewards of the candidates in order; None for failed ones.
    """
    places = [place for place, found in enumerate(rewards) if found is not None]
    vectors = [[float(found[name]) for name in problem.space.names] for found in rewards if found is not None]
    if not vectors:
        return []
    best, improved, met = None, list[int](), [problem.targets_met(vector) for vector in vectors]
    for place, merit in zip(places, problem.ranking.merits(vectors, met), strict=True):
        if merit.feasibility == 0 and (best is None or merit > best):
            improved += [] if best is None else [place]
            best = merit
    return improved


def report(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the table; a cell with several runs has one value for each, in the order of their seeds."""
    found = list(lines)
    rows = [_HEAD]
    for problem in PROBLEMS:
        for arm in ARMS:
            mine = [line for line in found if (line["problem"], line["arm"]) == (problem, arm)]
            if mine:
                rows.append(_row(problem, arm, mine))
    return "\n".join(rows) + "\n"


def _row(problem: str, arm: str, runs: Sequence[Mapping[str, Any]]) -> str:
    by: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for run in runs:
        asked.update(run.get("asked", {}))
        by.update(policy for _, policy in run["improvements"])
    last = [run["improvements"][-1][0] if run["improvements"] else None for run in runs]
    columns = [
        problem,
        arm,
        len(runs),
        sum(run["evaluations"] for run in runs),
        _counts(asked, "–"),
        sum(run["failed"] for run in runs),
        _counts(by, "none"),
        ", ".join("–" if place is None else str(place) for place in last),
        ", ".join("–" if run["best"] is None else f"{run['best']:.4g}" for run in runs),
        f"{sum(run['tokens'] for run in runs):,}",
        f"{sum(run['seconds'] for run in runs):,.0f}",
    ]
    return f"| {' | '.join(map(str, columns))} |"


def _counts(found: Counter[str], nothing: str) -> str:
    return ", ".join(f"{policy} {count}" for policy, count in found.most_common()) or nothing
