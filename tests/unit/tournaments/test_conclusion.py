"""The result of a tournament in one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.domain.tournament import Extension
from speciate.tournaments.rendering.conclusion import conclusion, deciding
from speciate.tournaments.rendering.html import page
from speciate.tournaments.report.models import Amendment, Subject, Verdict
from speciate.tournaments.report.results import MISSING, PENDING
from tests.unit.tournaments.synthetic import report_of, results_of, schedule_of


def test_a_decision_names_entrants_problems_and_evidence() -> None:
    schedule = schedule_of(40, 2, 2)
    report = report_of(schedule, results_of(schedule, shift=3.0))
    base, better = report.standings.standings
    (comparison,) = report.standings.comparisons
    points = f"{100 * (better.pass_1.value - base.pass_1.value):.0f} percentage points more, over 40 problems"
    assert conclusion(report) == (
        f"Checkpoint e1 unlocks problems in more runs than checkpoint e0: {points} (p = {comparison.holm:.2g})."
        " This compares these checkpoints, not their training methods."
    )
    turned = report_of(schedule, results_of(schedule, shift=-3.0))
    assert turned.standings.comparisons[0].verdict is Verdict.WORSE
    assert conclusion(turned).startswith("Checkpoint e0 unlocks problems in more runs than checkpoint e1: ")
    assert f"<p><strong>{conclusion(report)}</strong></p>" in page(report)


def test_the_numbers_beside_p_are_those_that_are_tested() -> None:
    """Both unlock every problem, which a test of unlocked problems cannot tell apart."""
    schedule = schedule_of(20, 4, 2)
    results = results_of(schedule)
    results.reached[:] = True
    results.reached[:, 1:, 0] = False
    report = report_of(schedule, results)
    points = "75 percentage points more, over 20 problems"
    assert f"e1 unlocks problems in more runs than checkpoint e0: {points} (p = " in conclusion(report)


def test_the_problems_won_are_those_of_the_better_entrant() -> None:
    """Six problems are won by much, eight are lost by little."""
    schedule = schedule_of(14, 2, 2, metric="best_score")
    results = results_of(schedule)
    results.score[..., 0] = 0.5
    results.score[:6, :, 1], results.score[6:, :, 1] = 0.8, 0.499
    assert "checkpoint e0: best_score 0.128 higher, 6 : 8 of 14 problems" in conclusion(report_of(schedule, results))


def test_the_metric_and_the_target_are_named() -> None:
    schedule = schedule_of(31, 2, 2, metric="log_ert", target="short")
    results = results_of(schedule)
    results.reached[:] = True
    results.evaluations[..., 0], results.evaluations[..., 1] = 50.0, 25.0
    said = conclusion(report_of(schedule, results))
    assert said.startswith(
        "Checkpoint e1 reaches short on problems with 2 times fewer evaluations than checkpoint e0, as the geometric"
        " mean over 31 problems (p = "
    )
    # Without success, twice the budget of both seeds counts, also of an entrant that gives up.
    results.reached[..., 0] = False
    assert "with 16 times fewer evaluations than checkpoint e0, as" in conclusion(report_of(schedule, results))
    results.evaluations[..., 0] = 5e4
    assert "with 8,000 times fewer evaluations than checkpoint e0, as" in conclusion(report_of(schedule, results))


def test_the_factor_is_the_one_that_was_tested() -> None:
    """Pooled over problems, the better entrant needs more evaluations."""
    schedule = schedule_of(31, 2, 2, metric="log_ert")
    results = results_of(schedule)
    results.reached[:] = True
    results.evaluations[..., 0], results.evaluations[..., 1] = 4.0, 2.0
    results.evaluations[0, :, 1] = 4e3
    report = report_of(schedule, results)
    base, better = report.standings.standings
    assert (better.ert.value or 0) > (base.ert.value or 0)
    assert "Checkpoint e1 unlocks problems with 1.57 times fewer evaluations than checkpoint e0, as" in conclusion(
        report
    )


def test_a_comparison_is_cut_where_its_e_process_stops() -> None:
    """The second decision takes longer; problems after the first one's would turn its difference."""
    schedule = schedule_of(60, 8, 3, stopping="e_process")
    results = results_of(schedule)
    results.reached[:] = False
    results.reached[:7, :, 1] = results.reached[7:, :4, 0] = results.reached[7:, :5, 2] = True
    comparisons = report_of(schedule, results).standings.comparisons
    assert [each.verdict for each in comparisons] == [Verdict.BETTER] * 2
    assert comparisons[0].e_problems == 7 < comparisons[1].e_problems
    for each in comparisons:
        assert each.difference.value > 0
        assert each.wins + each.ties + each.losses == each.e_problems


def test_the_e_process_shows_its_evidence() -> None:
    schedule = schedule_of(60, 8, 2, stopping="e_process")
    report = report_of(schedule, results_of(schedule, shift=4.0))
    (comparison,) = report.standings.comparisons
    assert f" {report.design.decided_after} problems (e-value {comparison.e_value:.3g}, decided at 20)." in conclusion(
        report
    )


def test_open_comparisons_are_named_beside_decided_ones() -> None:
    schedule = schedule_of(40, 2, 9)
    results = results_of(schedule, shift=0.0)
    results.reached[..., 1:7] = True
    results.reached[..., 0] = np.arange(40)[:, None] < 10
    results.reached[..., 7:] = results.reached[..., :1]
    said = conclusion(report_of(schedule, results))
    assert said.count("unlocks problems in more runs than checkpoint e0") == 4
    assert "; 2 more comparisons are decided; undecided: e7 against e0, e8 against e0. This compares" in said


@pytest.mark.parametrize("entrants", [2, 3])
def test_reasons_for_no_decision(entrants: int) -> None:
    schedule = schedule_of(12, 2, entrants)
    results = results_of(schedule)
    results.reached[:] = results.reached[..., :1]
    equal = conclusion(report_of(schedule, results))
    assert equal.startswith("Undecided: the differences may be due to chance (p = 1); problems unlocked, of 12: e0 ")
    amended = (Amendment(extension=Extension(seeds=(9,), reason="more"), ended_runs=5),)
    assert conclusion(report_of(schedule, results, amended)).startswith("Undecided: the tournament was extended after")
    results.state[5:] = PENDING
    assert conclusion(report_of(schedule, results)).startswith(
        f"Undecided: {10 * entrants} of {24 * entrants} runs have ended; problems unlocked, of 5: "
    )
    results.state[:] = PENDING
    assert conclusion(report_of(schedule, results)).endswith("runs have ended; no pair of runs has completed.")
    of_scores = schedule_of(12, 2, entrants, metric="best_score")
    results = results_of(of_scores)
    results.state[:, 0, 0], results.score[:] = MISSING, 0.5  # no problem has all runs of e0
    assert "e1 0.5" in conclusion(report_of(of_scores, results))
    assert "e0" not in conclusion(report_of(of_scores, results))
    few = schedule_of(3, 2, entrants)
    assert conclusion(report_of(few, results_of(few))).startswith("Undecided: 3 problems cannot decide any comparison")


def test_entrants_that_have_ended_on_different_problems_have_numbers_of_their_own() -> None:
    schedule = schedule_of(8, 2, 2)
    results = results_of(schedule)
    results.reached[:] = True
    results.state[6:, :, 0] = PENDING
    assert conclusion(report_of(schedule, results)).endswith("; problems unlocked: e1 8 of 8, e0 6 of 6.")
    scores = schedule_of(8, 2, 2, metric="best_score")
    results.score[:] = 0.5
    assert conclusion(report_of(scores, results)).endswith("; mean best score: e0 0.5 (n=6), e1 0.5 (n=8).")
    results.state[1:, :, 1] = results.state[1:, :, 0] = PENDING
    assert conclusion(report_of(scores, results)).endswith("; mean best score on 1 problem: e0 0.5, e1 0.5.")
    results.state[0, 0] = PENDING  # a pair has ended, but no problem has all its runs
    assert conclusion(report_of(scores, results)) == "Undecided: 2 of 32 runs have ended."


def test_open_comparisons_say_how_many_problems_would_decide_them() -> None:
    schedule = schedule_of(12, 2, 2)
    results = results_of(schedule)
    results.reached[:] = results.reached[..., :1]
    assert deciding(report_of(schedule, results)) == ""  # no difference: no number of problems decides
    results.reached[:3, :, 0], results.reached[:3, :, 1] = False, True
    report = report_of(schedule, results)
    (open_one,) = report.standings.comparisons
    assert open_one.verdict is Verdict.NOT_ENOUGH_EVIDENCE
    said = deciding(report)
    assert said.startswith("It would take about ")
    assert said.endswith(" problems for e1 against e0, if the differences stay what they are.")
    # The differences are 3 times 1 and 9 times 0, at 5 %: ((1.96 + 0.84) · 0.452 / 0.25)².
    assert said.split()[4] == "26"
    twice = schedule_of(12, 2, 3)
    repeated = results_of(twice)
    repeated.reached[:] = results.reached[..., [0, 1, 1]]
    assert deciding(report_of(twice, repeated)).split()[4] == "32"  # Holm over both leaves 2.5 % to the first
    assert deciding(report_of(schedule_of(40, 2, 2), results_of(schedule_of(40, 2, 2), shift=3.0))) == ""


def test_entrants_that_are_asked_in_another_way_are_not_called_checkpoints() -> None:
    schedule = schedule_of(40, 2, 2)
    report = report_of(schedule, results_of(schedule, shift=3.0))
    (comparison,) = report.standings.comparisons
    assert comparison.subject is Subject.CHECKPOINT
    first, second = schedule.declared.entrants
    declared = schedule.declared.model_copy(update={"entrants": (first, second.model_copy(update={"batch": 32}))})
    other = report_of(schedule.model_copy(update={"declared": declared}), results_of(schedule, shift=3.0))
    assert other.standings.comparisons[0].subject is Subject.ENTRANT
