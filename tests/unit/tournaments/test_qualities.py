"""Report sections beyond the standings: numbers match their estimators, and intervals match the bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from speciate.domain.entrant import Entrant
from speciate.domain.tournament import Schedule
from speciate.tournaments.rendering.html import page
from speciate.tournaments.rendering.tables import sections
from speciate.tournaments.report.resamples import Resamples
from speciate.tournaments.report.results import MISSING
from speciate.tournaments.report.run_summary import POLICY_NUMBERS
from speciate.tournaments.statistics.estimators import best_at_k, pass_at_k
from speciate.tournaments.statistics.significance import sign_flips
from tests.unit.tournaments.oracles import clustered_interval
from tests.unit.tournaments.synthetic import report_of, results_of, schedule_of


def test_curves_over_k_are_the_unbiased_estimators() -> None:
    schedule = schedule_of(40, 5, 2)
    results = results_of(schedule, shift=1.0)
    for i, draws in enumerate(report_of(schedule, results).draws):
        successes, scores = results.reached[..., i].sum(axis=1), results.score[..., i]
        assert draws.k == (1, 2, 3, 4, 5)
        for k, passed, best in zip(draws.k, draws.pass_at, draws.best_at, strict=True):
            assert passed.value == pytest.approx(pass_at_k(5, successes, k).mean(), abs=1e-12)
            assert best.value == pytest.approx(best_at_k(scores, k).mean(), abs=1e-12)
            assert passed.low is not None
            assert best.problems == 40


def test_hypervolume_and_health_exclude_missing_runs() -> None:
    schedule = schedule_of(33, 4, 3)
    results = results_of(schedule, shift=2.0)
    results.state[0, 0, 1] = results.state[5, :, 1] = MISSING
    results.by_policy[7, :, 1, 0, POLICY_NUMBERS.index("entropy")] = np.nan
    report = report_of(schedule, results)
    known = np.where(results.ended, results.hypervolume, np.nan)[:, :, 1]
    some = ~np.isnan(known).all(axis=1)
    volume = report.qualities[1].hypervolume
    assert volume.value == pytest.approx(np.nanmean(known[some], axis=1).mean(), abs=1e-12)
    assert (volume.problems, volume.runs) == (32, 33 * 4 - 5)
    assert report.health[1].entropy.problems == 31
    assert report.health[1].rollouts == 100 * (33 * 4 - 5)


def test_the_law_of_the_best_score_is_fitted_to_the_best_scores() -> None:
    schedule = schedule_of(40, 4, 2)
    results = results_of(schedule)
    law = report_of(schedule, results).score_laws[0]
    assert law.measured == pytest.approx(results.best_by[..., 0, :].mean(axis=(0, 1)).tolist())
    assert [point.evaluations for point in law.predicted] == [100, 200, 400]
    assert law.worst_residual is not None


def test_shared_resamples_give_the_bootstraps_interval() -> None:
    values = np.random.default_rng(3).normal(size=60)
    found = Resamples(schedule_of(3, 2, 2)).mean(values, 60)
    alone = clustered_interval(values, np.random.default_rng(9), draws=20_000)
    assert found.value == alone.estimate
    assert (found.low, found.high) == (pytest.approx(alone.low, abs=0.03), pytest.approx(alone.high, abs=0.03))


def test_ratios_divide_sums_and_may_have_no_upper_end() -> None:
    resamples = Resamples(schedule_of(3, 2, 2))
    above = np.arange(1.0, 41.0)
    found = resamples.ratio(above, np.ones(40), 40, "infinite")
    assert found.value == 20.5
    assert (found.low, found.high) == (pytest.approx(17.0, abs=1.0), pytest.approx(24.0, abs=1.0))
    rare = resamples.ratio(np.full(40, 10.0), np.eye(1, 40)[0], 40, "infinite")
    assert (rare.value, rare.high, rare.note) == (400.0, None, "the interval has no upper end")
    assert resamples.ratio(np.ones(40), np.zeros(40), 40, "infinite").note == "infinite"


def test_equal_problems_give_no_interval() -> None:
    resamples, spent = Resamples(schedule_of(3, 2, 2)), np.arange(1.0, 41.0)
    found = [resamples.mean(np.full(40, value), 320) for value in (0.0, 0.1, 1.0)]
    found += [resamples.ratio(above, np.ones(40), 320, "infinite") for above in (np.full(40, 0.3), np.zeros(40))]
    found.append(resamples.ratio(0.1 * spent, spent, 320, "infinite"))
    assert [each.value for each in found] == pytest.approx([0.0, 0.1, 1.0, 0.3, 0.0, 0.1])
    for each in found:
        assert (each.low, each.high, each.level) == (None, None, None)
        assert each.note == "interval withheld: all problems have the same value"
    rare = resamples.mean(np.eye(1, 40)[0], 320)
    assert (rare.low, rare.note) == (0.0, "")
    assert (rare.high or 0.0) > 0.05


@pytest.mark.parametrize("solved", [False, True])
def test_a_report_of_equal_problems_withholds_intervals(solved: bool) -> None:
    schedule = schedule_of(40, 8, 4)
    results = results_of(schedule)
    results.reached[:], results.evaluations[:] = solved, 100.0
    report = report_of(schedule, results)
    standing, (comparison, *_) = report.standings.standings[0], report.standings.comparisons
    for each in (standing.pass_1, standing.pass_k, report.draws[0].pass_at[0], comparison.difference,
                 report.pairwise[0].chance, *([standing.ert] if solved else [])):  # fmt: skip
        assert each.value is not None
        assert (each.low, each.high, each.note) == (None, None, "interval withheld: all problems have the same value")
    law = report.budget_laws[0]
    assert law.note == "interval withheld: all problems have the same value"
    assert {(point.low, point.high) for point in law.predicted} == {(None, None)}
    assert standing.best_1.low is not None
    assert report.score_laws[0].predicted[0].low is not None
    tables = {section.key: section for section in sections(report)}
    for key in ("standings", "comparisons", "draws", "laws", "pairwise"):
        assert tables[key].note.endswith(" Interval withheld: all problems have the same value.")
    assert all(
        "[" not in cell for key in ("comparisons", "laws", "pairwise") for row in tables[key].rows for cell in row
    )
    assert page(report).count("<svg") == 6


def test_shared_sign_patterns_give_about_the_p_values_of_separate_tests() -> None:
    rng = np.random.default_rng(4)
    several = [rng.normal(shift, 1.0, n) for shift, n in ((0.0, 30), (0.4, 45), (0.0, 8))]
    several[1][3] = 0.0
    together = sign_flips(several, np.random.default_rng(0), 50_000)
    for values, found in zip(several, together, strict=True):
        (alone,) = sign_flips([values], np.random.default_rng(1), 50_000)
        assert found.p_value == pytest.approx(alone.p_value, abs=0.01)
        assert (found.difference, found.exact) == (alone.difference, alone.exact)
    assert together[2].exact


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_differences_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="expected finite numbers"):
        sign_flips([[0.1, 0.2], [value, 0.1, 0.2]], np.random.default_rng(0))


def test_ensembles_are_in_the_tables_and_the_figures() -> None:
    mixed = Entrant.model_validate({"name": "mixed", "policy": {"<b>q0": 2, "q9@1": 1}, "choice": "ucb"})
    plain = schedule_of(32, 2, 2)
    schedule = Schedule.of(
        plain.declared.model_copy(update={"entrants": (plain.declared.entrants[0], mixed), "baseline": "e0"})
    )
    report = report_of(schedule, results_of(schedule))
    tables = {section.key: section for section in sections(report)}
    (told,) = [row[1] for row in tables["design"].rows if row[0] == "entrant mixed"]
    assert told.startswith("<b>q0=2 + q9@1=1, chosen by ucb; ")
    assert len(tables["health"].rows) == 3
    text = page(report)
    assert "<b>" not in text
    # Curves over k twice, targets twice, two laws.
    assert text.count("<svg") == 6
    assert "nan" not in text.lower().replace("nano", "")
    assert all(
        math.isfinite(float(x))
        for part in text.split('points="')[1:]
        for x in part.split('"')[0].replace(",", " ").split()
    )
