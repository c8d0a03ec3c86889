"""Reports on training methods: the training run is the unit, and checkpoints do not speak for their methods."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.domain.tournament import Extension, Schedule
from speciate.tournaments.head_to_head import methods_head_to_head
from speciate.tournaments.rendering.cells import shown
from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.html import page
from speciate.tournaments.rendering.tables import sections, verdict
from speciate.tournaments.report.build import make_standings
from speciate.tournaments.report.methods import methods_power
from speciate.tournaments.report.models import Amendment, Subject, Verdict
from speciate.tournaments.report.results import ENDED, MISSING, PENDING, Results
from speciate.tournaments.statistics.methods import compare_methods
from tests.unit.tournaments.synthetic import methods_of, report_of, results_of, schedule_of


def filled(schedule: Schedule, solved: list[int]) -> Results:
    """Return results in which each entrant solves so many of the problems in every run."""
    results = results_of(schedule)
    results.reached[:] = np.arange(len(schedule.problems))[:, None, None] < np.array(solved)
    return results


def test_the_training_run_is_the_unit() -> None:
    schedule = methods_of(6, 6)
    solved = [4, 5, 3, 4, 5, 4, 7, 9, 6, 8, 9, 5]
    report = report_of(schedule, filled(schedule, solved))
    (found,) = report.standings.methods
    rates = np.array(solved) / 12
    assert [run.value for run in (*found.runs_b, *found.runs_a)] == pytest.approx(list(rates))
    assert found.difference == pytest.approx(rates[6:].mean() - rates[:6].mean())
    assert (found.paired, found.exact, found.wins, found.p_value, found.smallest_p) == (True, True, 6, 1 / 32, 1 / 32)
    assert (found.verdict, found.problems) == (Verdict.BETTER, 12)
    by_problem = np.arange(12) < np.array(solved)[:, None]
    expected = compare_methods(by_problem[6:], by_problem[:6], np.random.default_rng(0), paired=True)
    assert (found.low, found.high) == (expected.low, expected.high)
    said = conclusion(report)
    assert said.startswith(
        "Method m1 unlocks problems in more runs than method m0: 61% against 35%, over 6 paired training seeds"
        " (p = 0.031). "
    )
    assert "not their training methods" not in said
    assert verdict(found).startswith("Method m1 is better than method m0 (sign-flip test over paired training")
    keys = [section.key for section in sections(report)]
    assert keys.index("methods") < keys.index("comparisons")
    (table, runs) = (next(s for s in sections(report) if s.key == key) for key in ("methods", "training-runs"))
    assert (len(table.rows), len(runs.rows)) == (1, 12)
    assert "6 paired training seeds" in table.rows[0]
    assert "<h2>Methods</h2>" in page(report)
    assert {each.subject for each in report.standings.comparisons} == {Subject.CHECKPOINT}


def test_three_training_seeds_decide_checkpoints_and_no_methods() -> None:
    schedule = methods_of(3, 3, problems=40)
    report = report_of(schedule, filled(schedule, [5, 6, 7, 35, 34, 36]))
    (found,) = report.standings.methods
    assert (found.p_value, found.smallest_p, found.verdict) == (0.25, 0.25, Verdict.NOT_ENOUGH_EVIDENCE)
    why = "3 paired training seeds cannot show a difference between methods: p is at least 0.25"
    said = conclusion(report)
    assert said.startswith(
        f"Methods m1 and m0: undecided, {why}, expected at least 6 of each method. Checkpoint m1-s0 unl"
    )
    assert why in found.note
    (power,) = methods_power(schedule.declared)
    assert power.startswith(why)
    assert any(row[0] == "power, methods" for row in sections(report)[0].rows)


def test_unequal_training_seeds_are_unpaired_and_holm_counts_methods() -> None:
    schedule = methods_of(5, 5, 5, first=(0, 5, 10))
    report = report_of(schedule, filled(schedule, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2, 3, 1, 5, 4]))
    better, equal = report.standings.methods
    assert not better.paired
    assert better.p_value == pytest.approx(2 / 252)
    assert better.holm == pytest.approx(4 / 252)
    assert (better.verdict, better.wins) == (Verdict.BETTER, 25)
    assert (equal.p_value, equal.verdict) == (1.0, Verdict.NOT_ENOUGH_EVIDENCE)
    said = conclusion(report)
    assert "over 5 and 5 training runs (p = 0.016)." in said
    assert (
        "Methods m2 and m0: undecided, the difference over 5 and 5 training runs may be due to chance (p = 1)." in said
    )
    (power,) = methods_power(schedule.declared)
    assert power.startswith(
        "5 and 5 training runs detect, with a probability of 80 %, a difference between methods of "
    )


def test_tests_of_methods_wait_for_the_last_run_and_survive_missing_ones() -> None:
    schedule = methods_of(6, 6)
    results = filled(schedule, [4] * 6 + [9] * 6)
    results.state[3, 1, 2] = PENDING
    (early,) = report_of(schedule, results).standings.methods
    assert (early.verdict, early.p_value, early.holm, early.low) == (Verdict.UNFINISHED, None, None, None)
    assert early.difference == pytest.approx(5 / 12)
    assert "Method" not in conclusion(report_of(schedule, results))
    results.state[3, 1, 2] = MISSING
    (found,) = report_of(schedule, results).standings.methods
    assert (found.missing_pairs, found.p_value) == (1, 1 / 32)
    late = (Amendment(extension=Extension(seeds=(9,), reason="more"), ended_runs=5),)
    (exploratory,) = report_of(schedule, results, late).standings.methods
    assert exploratory.verdict is Verdict.EXPLORATORY
    assert conclusion(report_of(schedule, results, late)).startswith(
        "Methods m1 and m0: undecided, extended after runs"
    )
    results.state[..., 2] = MISSING  # a training run without any search leaves with its partner
    (fewer,) = report_of(schedule, results).standings.methods
    assert (fewer.p_value, fewer.smallest_p, fewer.missing_pairs) == (1 / 16, 1 / 16, 24)
    assert (fewer.verdict, fewer.note[:13]) == (Verdict.EXPLORATORY, "training runs")
    assert [run.value is None for run in fewer.runs_a] == [i == 2 for i in range(6)]
    results.state[..., :6] = MISSING
    (none,) = report_of(schedule, results).standings.methods
    assert (none.difference, none.problems, none.note) == (
        None, 0, "no problem has a completed run of every training run"
    )  # fmt: skip
    assert "<h2>Methods</h2>" in page(report_of(schedule, results))


def test_methods_are_compared_within_each_search_and_searches_are_no_checkpoints() -> None:
    runs = {method: [(f"{method}-{seed}@1", seed) for seed in range(6)] for method in ("grpo", "vpo")}
    entrants, baseline = methods_head_to_head(runs, mutator="m@1")
    schedule = schedule_of(12, 2, 2, entrants=entrants, baseline=baseline)
    solved = [3 if "grpo" in entrant.name else 9 for entrant in entrants]
    report = report_of(schedule, filled(schedule, solved))
    assert [found.search for found in report.standings.methods] == [
        "best_of_n",
        "vector_evolution",
        "vector_evolution, mutator m@1",
    ]
    assert [found.holm for found in report.standings.methods] == [3 / 32] * 3
    said = conclusion(report)
    assert said.count("Methods vpo and grpo with ") == 3
    assert "Methods vpo and grpo with best_of_n: undecided, 6 paired training seeds cannot show a difference" in said
    assert "p is at least 0.094 after Holm over 3, expected at least 7 of each method." in said
    subjects = {(found.a, found.b): found.subject for found in report.standings.comparisons}
    assert subjects["vpo-0-v1-evolved", "grpo-0-v1-evolved"] is Subject.CHECKPOINT
    assert subjects["grpo-1-v1-evolved", "grpo-1-v1-independent"] is Subject.SEARCH
    alone = entrants[0].model_copy(update={"method": None, "training_seed": None})
    other = entrants[-1].model_copy(update={"against": None, "method": None, "training_seed": None})
    mixed = schedule_of(12, 2, 2, entrants=[alone, other], baseline=baseline)
    (found,) = report_of(mixed, filled(mixed, [0, 12])).standings.comparisons
    assert found.subject is Subject.ENTRANT
    assert verdict(found).startswith("Entrant vpo-5-v1-common-mutator is better than entrant grpo-0-v1-independent (")


def test_log_ert_of_methods_is_compared_too() -> None:
    schedule = methods_of(6, 6, metric="log_ert")
    results = filled(schedule, [12] * 12)
    results.evaluations[:] = np.where(np.arange(12) < 6, 60, 20)
    report = report_of(schedule, results)
    assert report.standings.methods[0].difference == pytest.approx(np.log(3))
    assert conclusion(report).startswith(
        "Method m1 unlocks problems with fewer evaluations than method m0, over 6 paired"
    )


def test_equal_methods_with_different_runs_pass_and_their_checkpoints_fail() -> None:
    """The report's own verdicts: training runs of two equal methods differ by half a logit."""
    rng, rejected = np.random.default_rng(7), np.zeros(2)
    schedule = methods_of(6, 6, problems=40)
    results = results_of(schedule)
    results.state[:] = ENDED
    times = 60
    for _ in range(times):
        logits = rng.normal(0.0, 1.5, (40, 1, 1)) + rng.normal(0.0, 0.7, (1, 1, 12))
        results.reached[:] = rng.random((40, 2, 12)) < 1 / (1 + np.exp(-logits))
        found = make_standings(schedule, (), results)
        first = next(each for each in found.comparisons if (each.a, each.b) == ("m1-s0", "m0-s0"))
        rejected += (found.methods[0].verdict in {Verdict.BETTER, Verdict.WORSE}, (first.p_value or 1.0) <= 0.05)
    assert rejected[0] / times <= 0.12  # 0.05 and two and a half standard errors
    assert rejected[1] / times >= 0.3


@pytest.mark.parametrize(("value", "text"), [(1.39e-17, "+0"), (-1e-13, "+0"), (0.05, "+0.05"), (-1234.5, "-1,234")])
def test_rounding_errors_are_no_differences(value: float, text: str) -> None:
    assert shown(value, "+.3g") == text


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e90])
@pytest.mark.parametrize("first", [(), (0, 50)], ids=["paired", "unpaired"])
def test_scores_may_have_any_scale(scale: float, first: tuple[int, ...]) -> None:
    schedule = methods_of(5, 5, metric="best_score", first=first)
    results = results_of(schedule)
    results.score[:] *= scale
    results.best_by[:] *= scale
    (comparison,) = report_of(schedule, results).standings.methods
    assert comparison.low is not None
    assert comparison.high is not None
    assert comparison.low <= comparison.difference <= comparison.high
