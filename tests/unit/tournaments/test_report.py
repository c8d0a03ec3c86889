"""Reports of synthetic results: numbers, verdicts, withheld intervals and rendering."""

from __future__ import annotations

import math
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from speciate.domain.tournament import Extension
from speciate.tournaments.rendering import cells
from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.html import _curves, page
from speciate.tournaments.rendering.tables import sections, short_sections
from speciate.tournaments.report.comparisons import decided_after, evidence, pair_up, problems_power
from speciate.tournaments.report.measures import Estimate
from speciate.tournaments.report.models import Amendment, Verdict
from speciate.tournaments.report.results import MISSING, PENDING
from speciate.tournaments.statistics.significance import mcnemar, sign_flips
from tests.unit.tournaments.synthetic import BUDGET, report_of, results_of, schedule_of


def test_numbers_are_those_of_the_estimators() -> None:
    schedule = schedule_of(40, 8, 2)
    results = results_of(schedule, shift=1.5)
    report = report_of(schedule, results)
    base, better = report.standings.standings
    assert base.pass_1.value == pytest.approx(results.reached[..., 0].mean())
    assert base.pass_k.value == pytest.approx(results.reached[..., 0].any(axis=1).mean())
    assert base.best_k.value == pytest.approx(results.score[..., 0].max(axis=1).mean())
    assert base.best_1.value == pytest.approx(results.score[..., 0].mean())
    assert better.ert.value == pytest.approx(results.evaluations[..., 1].sum() / results.reached[..., 1].sum())
    assert (better.unlocked, better.ended) == (results.reached[..., 1].any(axis=1).sum(), 320)
    for estimate in (base.pass_1, base.pass_k, base.best_k, better.ert, report.pairwise[0].chance):
        assert estimate.problems == 40
        assert estimate.low is not None
        assert estimate.low < (estimate.value or 0) < (estimate.high or math.inf)
    (comparison,) = report.standings.comparisons
    differences = results.reached[..., 1].mean(axis=1) - results.reached[..., 0].mean(axis=1)
    assert comparison.difference.value == pytest.approx(differences.mean())
    (flips,) = sign_flips([differences], np.random.default_rng(0))
    assert comparison.p_value == pytest.approx(flips.p_value, abs=0.01)
    assert comparison.holm == comparison.p_value
    assert comparison.mcnemar == mcnemar(*results.reached[..., ::-1].any(axis=1).T).p_value
    assert comparison.verdict is Verdict.BETTER
    assert report.reached[0].share[-1] == pytest.approx(results.reached[..., 0].mean())
    assert report.reached[0].censored == (~results.reached[..., 0]).sum()
    assert report.budget_laws[0].measured[-1] == pytest.approx(results.reached[..., 0].mean())


def test_the_report_is_a_function_of_the_results() -> None:
    schedule = schedule_of(40, 4, 3)
    first = report_of(schedule, results_of(schedule))
    assert report_of(schedule, results_of(schedule)) == first
    assert report_of(schedule, results_of(schedule, seed=1)) != first


def test_equal_entrants_give_not_enough_evidence() -> None:
    schedule = schedule_of(12, 4, 2)
    results = results_of(schedule)
    results.reached[..., 1] = results.reached[..., 0]
    results.evaluations[..., 1] = results.evaluations[..., 0]
    (comparison,) = report_of(schedule, results).standings.comparisons
    assert (comparison.verdict, comparison.p_value, comparison.ties) == (Verdict.NOT_ENOUGH_EVIDENCE, 1.0, 12)


def test_too_few_problems_are_noted_and_one_seed_has_one_column() -> None:
    schedule, several = schedule_of(4, 1, 2), schedule_of(4, 3, 2, metric="best_score")
    results = results_of(schedule)
    results.reached[:] = [False, True]
    report = report_of(schedule, results)
    (comparison,) = report.standings.comparisons
    assert (comparison.verdict, comparison.p_value, comparison.wins) == (Verdict.NOT_ENOUGH_EVIDENCE, 0.125, 4)
    assert comparison.note.endswith("; 4 problems cannot decide any comparison: expected at least 6")
    standings = next(section for section in sections(report) if section.key == "standings")
    assert standings.columns[4:6] == (">pass@1", ">best@1")
    assert [row[0] for row in standings.rows] == [each.entrant for each in reversed(report.standings.standings)]
    (scores, *_) = [s for s in short_sections(report_of(several, results_of(several))) if s.key == "standings"]
    assert scores.columns[-1] == ">best@1"  # what is tested is the mean over seeds, not the best of them
    area = schedule_of(4, 3, 2, metric="area")
    measured = report_of(area, results_of(area))
    base, better = (each.area.value for each in measured.standings.standings)
    assert better - base == pytest.approx(measured.standings.comparisons[0].difference.value)
    assert f"mean area on 4 problems: e1 {better:.3g}, e0 {base:.3g}" in conclusion(measured)
    tables = [s for s in (*short_sections(measured), *sections(measured)) if s.key == "standings"]
    assert all(f"{better:.3g} n=4" == s.rows[0][s.columns.index(">area")] for s in tables)


def test_a_strict_level_over_many_comparisons_can_be_met() -> None:
    schedule = schedule_of(40, 2, 13, alpha=0.001)
    results = results_of(schedule)
    results.reached[:] = np.arange(13) > 0
    found = report_of(schedule, results).standings.comparisons
    assert {each.verdict for each in found} == {Verdict.BETTER}
    assert all(not each.exact and (each.holm or 1.0) <= 0.001 for each in found)


def test_below_thirty_problems_intervals_are_withheld_and_exact_tests_shown() -> None:
    schedule = schedule_of(12, 4, 2)
    report = report_of(schedule, results_of(schedule, shift=4.0))
    (comparison,) = report.standings.comparisons
    assert comparison.exact
    assert comparison.p_value is not None
    assert comparison.mcnemar is not None
    standing = report.standings.standings[0]
    for estimate in (comparison.difference, standing.pass_1, standing.ert, report.pairwise[0].chance):
        assert (estimate.low, estimate.high) == (None, None)
        assert "fewer than 30" in estimate.note
    assert report.budget_laws[0].predicted == ()
    assert "fewer than 30" in report.budget_laws[0].note


def test_p_values_are_withheld_until_every_run_has_ended() -> None:
    schedule = schedule_of(40, 4, 2)
    results = results_of(schedule, shift=3.0)
    results.state[39, 3, 1] = PENDING
    (comparison,) = report_of(schedule, results).standings.comparisons
    assert comparison.verdict is Verdict.UNFINISHED
    assert (comparison.p_value, comparison.holm, comparison.mcnemar) == (None, None, None)
    assert (comparison.difference.low, comparison.difference.high) == (None, None)
    assert "until all runs have ended" in comparison.difference.note
    assert comparison.e_value is not None
    assert comparison.e_problems <= 39


@pytest.mark.parametrize(
    ("stopping", "waiting", "why"),
    [
        ("fixed", True, "Interval withheld until all runs have ended."),
        ("e_process", True, "Interval withheld: not valid under early stopping."),
        ("e_process", False, "Interval withheld: not valid under early stopping."),
        ("fixed", False, None),
    ],
)
def test_contrasts_have_no_interval_before_the_end_or_under_early_stopping(
    stopping: str, waiting: bool, why: str | None
) -> None:
    schedule = schedule_of(40, 2, 4, stopping=stopping)
    results = results_of(schedule)
    if waiting:
        results.state[39, 1, 3] = PENDING
    report = report_of(schedule, results)
    differences = [each.difference for each in report.standings.comparisons]
    chances = [each.chance for each in report.pairwise]
    assert (len(differences), len(chances), len(report.strengths)) == (3, 6, 4)
    for each in (*differences, *chances, *report.strengths):
        assert (each.low is None) == (each.high is None) == (why is not None)
        assert each.note == ("" if why is None else why[0].lower() + why[1:-1])
    assert all(each.value is not None for each in (*differences, *chances))
    tables = {section.key: section for section in sections(report)}
    for key in ("comparisons", "pairwise", "strengths"):
        assert ("nterval withheld" in tables[key].note) == (why is not None)
        assert why is None or tables[key].note.endswith(why)
        assert all("[" not in cell for row in tables[key].rows for cell in row) == (why is not None)
        assert tables[key].note in page(report).replace("&gt;", ">")
    # Measures of a single entrant always have an interval.
    assert report.standings.standings[0].pass_1.low is not None


def test_equal_scores_in_another_order_are_ties() -> None:
    schedule = schedule_of(8, 3, 2, metric="best_score")
    results = results_of(schedule)
    results.score[..., 0], results.score[..., 1] = [0.3, 0.2, 0.1], [0.1, 0.2, 0.3]
    (comparison,) = report_of(schedule, results).standings.comparisons
    assert (comparison.ties, comparison.p_value) == (8, 1.0)


def test_the_power_is_that_of_all_problems_of_the_schedule() -> None:
    assert problems_power(schedule_of(4, 1, 2).declared, 40)[0].startswith("40 problems detect")


def test_pairs_with_missing_runs_are_excluded_and_counted() -> None:
    schedule = schedule_of(35, 4, 2)
    whole = results_of(schedule, shift=1.0)
    lost = replace(whole, state=whole.state.copy(), reasons={(3, 1, 0): "failed: x"})
    lost.state[3, 1, 0] = lost.state[7, :, 1] = MISSING
    report = report_of(schedule, lost)
    (comparison,) = report.standings.comparisons
    assert (comparison.pairs, comparison.missing_pairs, comparison.difference.problems) == (135, 5, 34)
    assert [cost.runs for cost in report.costs] == [140, 140]  # those whose evaluations are counted
    # The partner of a missing run does not enter the difference.
    lost.reached[3, 1, 1] = not lost.reached[3, 1, 1]
    again = report_of(schedule, lost).standings.comparisons[0]
    assert again.difference == comparison.difference
    assert [(run.entrant, run.problem, run.seed, run.reason) for run in report.missing] == [
        ("e0", "p3@1", 1, "failed: x")
    ]
    assert report.standings.standings[1].missing == 4


def test_an_extension_is_exploratory_once_runs_have_ended() -> None:
    schedule = schedule_of(40, 4, 2)
    results = results_of(schedule, shift=3.0)
    for ended, verdict in ((0, Verdict.BETTER), (5, Verdict.EXPLORATORY)):
        amendment = Amendment(extension=Extension(seeds=(9,), reason="more"), ended_runs=ended)
        (comparison,) = report_of(schedule, results, (amendment,)).standings.comparisons
        assert comparison.verdict is verdict
        assert (comparison.e_value is None) == (ended > 0)


def test_curves_share_their_end_and_are_dotted_beyond_the_first_censored_run() -> None:
    schedule = schedule_of(30, 2, 2)
    results = results_of(schedule)
    results.reached[..., 1] = True
    results.evaluations[..., 1] = 10
    results.evaluations[..., 0] = np.where(results.reached[..., 0], 5, 20)
    results.evaluations[0, 0, 0], results.reached[0, 0, 0] = 60, True
    censored, complete = _curves(
        [curve for curve in report_of(schedule, results).reached if curve.unit == "evaluations"]
    )
    share = (results.reached[..., 0].sum() - 1) / 60
    assert censored.points[-2:] == [(5.0, pytest.approx(share)), (20.0, pytest.approx(share))]
    assert censored.beyond[0] == censored.points[-1]
    assert censored.beyond[-1] == (60.0, pytest.approx(share + 1 / 60))
    assert (complete.points[-1], complete.beyond) == ((60.0, 1.0), ())


def test_the_e_process_reads_leading_problems_only_and_excludes_later_ones() -> None:
    schedule = schedule_of(60, 8, 2, stopping="e_process")
    results = results_of(schedule, shift=4.0)
    decided = decided_after(schedule, results)
    assert decided is not None
    assert 1 < decided < 60
    report = report_of(schedule, results)
    assert (report.design.decided_after, len(report.matrix.rows)) == (decided, decided)
    (comparison,) = report.standings.comparisons
    assert (comparison.verdict, comparison.p_value, comparison.e_problems) == (Verdict.BETTER, None, decided)
    assert (comparison.e_value or 0) >= comparison.e_threshold
    assert comparison.difference.low is None
    # Runs beyond the decision change nothing.
    late = results_of(schedule, shift=4.0)
    late.state[decided:] = PENDING
    late.reached[decided:] = False
    assert report_of(schedule, late) == report
    # A gap among the leading problems delays the decision.
    late.state[:] = results.state
    late.reached[:] = results.reached
    late.state[1, 0, 0] = PENDING
    assert decided_after(schedule, late) is None


def test_null_tournaments_inspected_after_every_problem_rarely_decide() -> None:
    trials = 200
    schedule = schedule_of(30, 4, 2, stopping="e_process")
    false = sum(decided_after(schedule, results_of(schedule, seed=seed)) is not None for seed in range(trials))
    # α = 5 %; the standard deviation of the share is 1.5 %.
    assert false / trials <= 0.05 + 3 * 0.0155


def test_under_the_fixed_rule_the_e_value_covers_all_problems_and_does_not_decide() -> None:
    schedule = schedule_of(60, 8, 2)
    results = results_of(schedule, shift=4.0)
    results.reached[30:] = results.reached[30:, :, ::-1]  # the second half contradicts the first
    report = report_of(schedule, results)
    (comparison,) = report.standings.comparisons
    assert (comparison.e_problems, comparison.verdict) == (60, Verdict.NOT_ENOUGH_EVIDENCE)
    assert (comparison.e_value or 0) < comparison.e_threshold
    stops = schedule_of(60, 8, 2, stopping="e_process")
    assert decided_after(stops, results) is not None
    notes = {rule: next(s.note for s in sections(report_of(c, results)) if s.key == "comparisons")
            for rule, c in (("fixed", schedule), ("e_process", stops))}  # fmt: skip
    assert "which does not decide under this stopping rule" in notes["fixed"]
    assert "which decides at its threshold" in notes["e_process"]


def test_comparisons_share_alpha() -> None:
    two, five = (schedule_of(60, 8, n, stopping="e_process") for n in (2, 5))
    thresholds = [report_of(c, results_of(c)).standings.comparisons[0].e_threshold for c in (two, five)]
    assert thresholds == [20.0, 80.0]
    for schedule, n, stops_at in ((two, 2, 40.0), (five, 5, 160.0)):
        results = results_of(schedule)
        found = evidence(schedule, results, pair_up(schedule, results, *schedule.declared.comparisons[0]), n - 1)
        assert found is not None
        assert found.threshold == stops_at


def test_log_ert_compares_costs_when_everything_is_solved() -> None:
    schedule = schedule_of(31, 2, 2, metric="log_ert")
    results = results_of(schedule)
    results.reached[:] = True
    results.evaluations[..., 0], results.evaluations[..., 1] = 50.0, 25.0
    (comparison,) = report_of(schedule, results).standings.comparisons
    assert comparison.difference.value == pytest.approx(math.log(2.0))
    assert comparison.verdict is Verdict.BETTER
    results.reached[0, :, 0] = False
    results.evaluations[0, :, 0] = BUDGET
    (comparison,) = report_of(schedule, results).standings.comparisons
    # Without success the cost counts twice: 2 · 2 · 100 against 25.
    assert comparison.difference.value == pytest.approx((30 * math.log(2.0) + math.log(16.0)) / 31)


def test_a_report_exists_before_any_run_has_ended() -> None:
    schedule = schedule_of(3, 2, 4)
    results = results_of(schedule)
    results.state[:] = PENDING
    report = report_of(schedule, results)
    assert (report.design.pending, report.strengths, report.reached) == (24, (), ())
    assert {each.verdict for each in report.standings.comparisons} == {Verdict.UNFINISHED}
    assert report.standings.standings[0].ert.value is None
    assert page(report).startswith("<!doctype html>")


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_file_needs_no_network_and_escapes_everything() -> None:
    schedule = schedule_of(32, 2, 4, title="<script>alert(1)</script>")
    results = replace(results_of(schedule), reasons={(0, 0, 0): '"><img src=x onerror=alert(1)>'})
    amendment = Amendment(extension=Extension(seeds=(9,), reason="</td><script>"), ended_runs=1)
    report = report_of(schedule, results, (amendment,))
    reader = _Reader()
    reader.feed(page(report))
    assert reader.tags.isdisjoint({"script", "img", "link", "iframe", "a", "object"})
    assert reader.attributes.isdisjoint({"src", "href", "onerror"})
    assert "svg" in reader.tags
    assert "default-src 'none'" in page(report)
    for section in sections(report):
        assert section.title in reader.text
        for row in section.rows:
            assert all(cell in reader.text for cell in row)


def test_sections_are_in_reading_order() -> None:
    schedule = schedule_of(32, 2, 4)
    assert [section.key for section in sections(report_of(schedule, results_of(schedule)))] == [
        "design", "problems", "standings", "comparisons", "sets", "draws", "matrix", "only", "reached", "laws",
        "score-laws", "pairwise", "strengths", "quality", "health", "costs",
    ]  # fmt: skip


def test_large_numbers_have_no_exponent() -> None:
    found = Estimate(value=1612.4, low=999.4, high=None, problems=6, runs=12)
    assert cells.estimate(found) == "1,612 [999, ∞] n=6"
    assert cells.estimate(found.model_copy(update={"value": -1612.4, "low": None}), "+.3g") == "-1,612 n=6"
