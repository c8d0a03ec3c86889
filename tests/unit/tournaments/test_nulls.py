"""Planted nulls, on runs that were really made: ``docs/evidence/arena.csv``."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.tables import sections
from speciate.tournaments.report.comparisons import compare
from speciate.tournaments.report.models import Verdict
from speciate.tournaments.report.resamples import Resamples
from speciate.tournaments.report.results import ENDED, Results
from tests.unit.tournaments.synthetic import report_of, results_of, schedule_of

ARENA = Path(__file__).parents[3] / "docs" / "evidence" / "arena.csv"
SEEDS, RESAMPLINGS = 8, 400


def _best() -> dict[str, np.ndarray[Any, Any]]:
    """Return the best scores at each mark by arm, shape (n_problems, n_seeds, n_marks), and the marks."""
    with ARENA.open() as file:
        rows = [row for row in csv.DictReader(file) if row["part"] == "main"]
    names = [sorted({row[axis] for row in rows}, key=str) for axis in ("problem", "seed")]
    marks = sorted({int(row["mark"]) for row in rows})
    best = {row["arm"]: np.zeros((*map(len, names), len(marks))) for row in rows}
    for row in rows:
        at = (*(each.index(row[axis]) for each, axis in zip(names, ("problem", "seed"), strict=True)),)
        best[row["arm"]][(*at, marks.index(int(row["mark"])))] = float(row["best"])
    return best | {"": np.array(marks)}


@pytest.mark.parametrize("metric", ["solve_rate", "log_ert"])
@pytest.mark.parametrize("stopping", ["fixed", "e_process"])
def test_null_of_real_runs_is_rejected_in_at_most_5_percent(metric: str, stopping: str) -> None:
    best = _best()
    marks = best.pop("")
    problems = len(next(iter(best.values())))
    entrants = [{"name": "e0", "policy": "q0@1"}, {"name": "e1", "policy": "q1@1"}]
    entrants.append({"name": "copy", "duplicate_of": "e1"})
    changes = {"entrants": entrants, "metric": metric, "stopping": stopping, "budget": {"evaluations": int(marks[-1])}}
    schedule = schedule_of(problems, SEEDS, 2, **changes)
    # Half of all runs reach the target of their problem.
    target = np.median([runs[..., -1] for runs in best.values()], axis=(0, 2))[:, None, None]
    rng, arms, rejected = np.random.default_rng(51), sorted(best), 0
    for i in range(RESAMPLINGS):
        runs = best[arms[i % len(arms)]]
        results = Results.empty(schedule)
        results.state[:] = ENDED
        for entrant in range(3):
            drawn = rng.integers(runs.shape[1], size=(problems, SEEDS))
            sampled = np.take_along_axis(runs, drawn[..., None], axis=1) >= target
            results.reached[..., entrant] = sampled.any(axis=-1)
            results.evaluations[..., entrant] = np.where(sampled.any(-1), marks[sampled.argmax(-1)], marks[-1])
        (null,) = compare(schedule, (), results, Resamples(schedule), schedule.declared.nulls)
        rejected += null.verdict in (Verdict.BETTER, Verdict.WORSE)
    # The sign-flip test uses its level up: 4.7 % of 8,000, which at 400 is more than 20 in two of five draws.
    assert binomtest(rejected, RESAMPLINGS, 0.05, alternative="greater").pvalue > 0.01


def test_null_is_tested_for_itself_and_told() -> None:
    entrants = [{"name": f"e{i}", "policy": f"q{i}@1"} for i in range(3)]
    planted = schedule_of(40, 4, 3, entrants=[*entrants, {"name": "copy", "duplicate_of": "e1"}])
    results = results_of(planted)
    results.reached[..., 3] = results.reached[..., 1]
    report = report_of(planted, results)
    (null,) = report.standings.nulls
    assert [(c.a, c.b) for c in report.standings.comparisons] == [("e1", "e0"), ("e2", "e0")]
    assert (null.a, null.b, null.p_value, null.holm, null.e_threshold) == ("copy", "e1", 1.0, 1.0, 20.0)
    assert conclusion(report).endswith("Null copy, a duplicate of e1: not rejected (p = 1).")
    results.reached[..., 3] = True
    report = report_of(planted, results)
    assert "Null copy, a duplicate of e1: rejected (p = " in conclusion(report)
    (section,) = [each for each in sections(report) if each.key == "nulls"]
    assert section.rows[0][0] == "copy − e1"
    assert section.rows[0][-1].startswith("rejected: sign-flip test")
