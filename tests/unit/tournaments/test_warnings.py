"""Warnings beside the conclusion: results that exist and say less than they seem to."""

from __future__ import annotations

from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.report.results import MISSING
from tests.unit.tournaments.synthetic import BUDGET, methods_of, report_of, results_of, schedule_of


def test_sound_results_have_no_warning() -> None:
    for schedule in (schedule_of(12, 2, 2), schedule_of(12, 2, 2, metric="best_score"), methods_of(3, 3)):
        assert report_of(schedule, results_of(schedule)).warnings == ()


def test_answers_that_were_refused_are_named() -> None:
    schedule = schedule_of(7, 3, 2)
    results = results_of(schedule)
    results.by_policy[..., 3] = [[0.2], [1.0]]  # unreadable
    report = report_of(schedule, results)
    assert report.warnings == ("100% of the answers of q1@1 to e1 were refused or could not be read.",)
    assert conclusion(report).endswith(report.warnings[0])


def test_runs_without_a_result_are_counted_with_the_commonest_reason() -> None:
    schedule = schedule_of(4, 1, 2)
    results = results_of(schedule)
    results.state[..., 1] = MISSING
    error = "failed: It ended with exit code 1: SyntaxError: invalid syntax"
    results.reasons.update({(p, 0, 1): error if p else "cancelled: no reason is kept" for p in range(4)})
    assert report_of(schedule, results).warnings == (f"4 of 8 runs have no result, most often: {error}.",)


def test_problems_that_the_first_program_meets_decide_nothing() -> None:
    schedule = schedule_of(12, 2, 2)
    results = results_of(schedule)
    results.reached[:3], results.evaluations[:3] = True, 1
    results.evaluations[2, 1, 0] = 2
    (warning,) = report_of(schedule, results).warnings
    assert warning.startswith("2 of 12 problems are met by the first program of every run")
    results.reached[:], results.evaluations[:] = False, BUDGET
    (warning,) = report_of(schedule, results).warnings
    assert warning.startswith("No run reached its target: metric best_score")
    of_scores = schedule_of(12, 2, 2, metric="best_score")
    assert report_of(of_scores, results).warnings == ()


def test_training_runs_with_identical_results_are_named() -> None:
    schedule = methods_of(3, 3)
    results = results_of(schedule)
    for numbers in (results.score, results.evaluations, results.duplicates, results.diversity_all, results.reached):
        numbers[..., 4] = numbers[..., 5]
    (warning,) = report_of(schedule, results).warnings
    assert warning.startswith("Training runs of method m1 have identical results in all their runs")
    results.score[0, 0, 4] += 0.1
    assert report_of(schedule, results).warnings == ()
