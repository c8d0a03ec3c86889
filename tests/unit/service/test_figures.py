"""Charts of populations, archives and comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.dashboard.figures.comparison import HYPERVOLUME, best_of, compare_curves_chart, compare_fronts_chart
from service.dashboard.figures.population import Population, axes, front_table, parallel_chart, population_chart
from service.dashboard.figures.progress import failures_chart, progress_chart
from service.dashboard.figures.solved import solved_objectives_chart
from service.dashboard.figures.tournament import reach_chart, score_chart
from service.dashboard.scales import bulk
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.target import ClaimState, Target
from speciate.tournaments.report.measures import Reached
from speciate.tournaments.report.results import PENDING
from tests.dashboard.samples import antenna, cases, single
from tests.unit.service.figure_samples import assert_accepted, sample_claim, sample_columns
from tests.unit.tournaments.synthetic import report_of, results_of, schedule_of


@pytest.mark.parametrize(("n", "failing"), [(0, 0.0), (1, 0.0), (1, 1.0), (60, 0.2), (60, 1.0)])
def test_plotly_accepts_every_figure(n: int, failing: float) -> None:
    for problem in (antenna(), single(), cases(30)):
        population = Population(problem, sample_columns(n, len(problem.objectives), failing=failing), "/runs/x")
        objective = problem.objectives[0]
        other = problem.objectives[-1]
        claims = [sample_claim(problem.targets[0].name, 1, state) for state in ClaimState]
        for chart in (
            population_chart(population, objective, other),
            parallel_chart(population),
            solved_objectives_chart(population),
            progress_chart(population, claims),
            failures_chart(population),
            compare_curves_chart([("<b>one</b>", [population]), ("two", [population])], best_of(objective)),
            compare_curves_chart([("<b>one</b>", [population]), ("two", [population])], HYPERVOLUME),
            compare_fronts_chart([("<b>one</b>", [population, population])], objective, other),
            compare_curves_chart([("<b>one</b>", [population, population]), ("two", [population])], best_of(objective)),
        ):
            assert_accepted(chart)


def test_an_infeasible_candidate_is_never_the_best() -> None:
    columns = sample_columns(3, 5, failing=0.0)
    columns.rewards[:, 0], columns.rewards[:, 4] = (3.0, 9.0, 4.0), (0.0, 0.1, 0.0)
    population = Population(antenna(), columns, "/runs/x")
    assert [row for row in progress_chart(population).table.rows if row[0] == "gain"] == [
        ("gain", 1, 1, 3.0),
        ("gain", 3, 3, 4.0),
    ]
    rows = compare_curves_chart([("one", [population])], best_of(population.problem.objectives[0])).table.rows
    assert [row[:4] for row in rows] == [("one", 1, 1, 3.0), ("one", 1, 3, 4.0)]


def test_a_refuted_target_does_not_count_for_the_best_candidate() -> None:
    columns = sample_columns(3, 5, failing=0.0)
    # No candidate dominates another: gain and sidelobe are in conflict.
    columns.rewards[:, 0], columns.rewards[:, 1], columns.rewards[:, 2:] = (3.0, 2.0, 1.0), (9.0, 8.0, 7.0), 0.0
    columns.targets[:] = (0b00, 0b11, 0b01)
    population = Population(antenna(), columns, "/runs/x")

    def best(*refuted: tuple[int, str]) -> tuple[Any, Any]:
        found = replace(population, refuted=refuted)
        gains = [row[3] for row in progress_chart(found).table.rows if row[0] == "gain"]
        return gains[-1], front_table(found).rows[0][0]

    assert best() == (2.0, 2)
    assert best((2, "record"), (2, "usable")) == (1.0, 3)
    assert columns.targets.tolist() == [0b00, 0b11, 0b01]


def test_an_infeasible_candidate_solves_no_case() -> None:
    plain = cases(30)
    limit = Objective(name="excess", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT)
    columns = sample_columns(3, 31, failing=0.0)
    columns.rewards[:] = 0.0
    columns.rewards[0, :20], columns.rewards[0, 30] = 1.0, 0.5  # solves most cases but is infeasible
    columns.rewards[1, 5] = 1.0
    limited = type(plain).model_validate(plain.model_dump() | {"objectives": (*plain.objectives, limit)})
    population = Population(limited, columns, "/runs/x")
    assert progress_chart(population).table.rows[-1] == (3, 1, 1)
    assert [row[:3] for row in solved_objectives_chart(population).table.rows if row[2]] == [
        ("case_5", "best candidate", 1)
    ]
    assert solved_objectives_chart(population).note.endswith(" Infeasible candidates do not count.")
    assert "nfeasible" not in solved_objectives_chart(Population(plain, sample_columns(3, 30), "/runs/x")).note


def test_a_group_mean_spans_the_evaluations_at_which_all_its_runs_have_a_value() -> None:
    def population(*gains: float) -> Population:
        columns = sample_columns(len(gains), 5, failing=0.0)
        columns.rewards[:, 0], columns.rewards[:, 4] = gains, 0.0
        return Population(antenna(), columns, "/runs/x")

    late = population(1.0, 1.0, 9.0)
    late.columns.rewards[0, 4] = 0.5  # infeasible: the run has a value from its second candidate on
    objective = antenna().objectives[0]
    chart = compare_curves_chart(
        [("both", [population(1.0, 3.0, 4.0, 8.0), late]), ("alone", [population(2.0)])], best_of(objective)
    )
    assert chart.table.rows == [
        ("both", 2, 2, 2.0, 1.0, 3.0),
        ("both", 2, 3, 6.5, 4.0, 9.0),
        ("alone", 1, 1, 2.0, 2.0, 2.0),
    ]
    assert [trace["name"] for trace in chart.data if trace.get("showlegend", True)] == ["both (2)", "alone"]
    assert "Left out" not in chart.note
    never = population(5.0)
    never.columns.rewards[0, 4] = 0.5
    chart = compare_curves_chart([("two", [population(2.0), never])], best_of(objective))
    assert chart.table.rows == [("two", 1, 1, 2.0, 2.0, 2.0)]
    assert " Left out: 1 run without a feasible candidate." in chart.note
    slow = population(1.0, 1.0, 1.0, 9.0)
    slow.columns.rewards[:3, 4] = 0.5
    chart = compare_curves_chart([("apart", [population(1.0, 2.0), slow])], best_of(objective))
    assert chart.note.endswith("no evaluations in common: apart.")


def test_the_table_of_a_front_has_the_objectives_that_are_drawn() -> None:
    plain = antenna()
    notes = tuple(Objective(name=f"note_{i}", role=ObjectiveRole.RECORD) for i in range(12))
    problem = type(plain).model_validate(plain.model_dump() | {"objectives": (*notes, *plain.objectives)})
    columns = front_table(Population(problem, sample_columns(9, 17), "/runs/x")).columns
    assert {"gain", "sidelobe", "bandwidth", "cost"} <= {*columns}


def test_fronts_of_runs_are_joined_where_they_are_best_in_both_objectives() -> None:
    columns = sample_columns(5, 5, failing=0.0)
    columns.rewards[:] = (5.0, 5.0, 0.5, 3.0, 0.0)
    columns.rewards[:, 0] = (4.0, 6.0, 5.0, 3.0, 9.0)
    columns.rewards[:, 3] = (1.0, 8.0, 9.0, 0.5, 0.1)
    columns.rewards[2, 2] = 0.9  # on the front for its bandwidth
    columns.rewards[4, 4] = 0.5  # infeasible
    population = Population(antenna(), columns, "/runs/x")
    named = {o.name: o for o in antenna().objectives}
    chart = compare_fronts_chart(
        [("%{x}", [population]), ("none", [Population(antenna(), sample_columns(0, 5), "/")])],
        named["gain"],
        named["cost"],
    )
    assert_accepted(chart)
    small, line = chart.data
    assert (line["customdata"], line["text"], line["line"]["shape"]) == (
        ["/runs/x/candidates/4", "/runs/x/candidates/1", "/runs/x/candidates/2"],
        ["4", "1", "2"],
        "vh",
    )
    assert (small["text"], small["showlegend"]) == (["3"], False)
    assert line["hovertemplate"].startswith("% {x}<br>")
    assert sorted(row[1] for row in chart.table.rows) == [1, 2, 3, 4]
    assert compare_fronts_chart(
        [("x", [Population(antenna(), sample_columns(2, 5, failing=1.0), "/")])], *list(named.values())[:2]
    ).empty


def test_hypervolumes_of_runs_are_compared() -> None:
    columns = sample_columns(400, 5, failing=0.2)
    columns.rewards[columns.scored, 4] = 0.0
    population = Population(antenna(), columns, "/runs/x")
    chart = compare_curves_chart([("one", [population])], HYPERVOLUME)
    values = [float(row[3] or 0) for row in chart.table.rows]
    assert values == sorted(values)
    assert 0 < values[-1] < 1
    assert chart.table.rows[-1][2] == 400
    assert compare_curves_chart([("one", [Population(antenna(), sample_columns(0, 5), "/")])], HYPERVOLUME).empty


def test_tournament_curves_extend_to_the_last_evaluation() -> None:
    def curve(entrant: str, spent: tuple[float, ...], share: tuple[float, ...], sound: float | None) -> Reached:
        return Reached(
            entrant=entrant, unit="evaluations", spent=spent, share=share, pairs=4, censored=2, sound_until=sound
        )

    early, late = curve("early", (2.0, 7.0), (0.25, 0.5), 20.0), curve("late", (18.0,), (1.0,), None)
    chart = reach_chart([early, late, curve("never", (), (), 20.0)])
    assert_accepted(chart)
    assert [(trace["name"], trace["x"][-1], trace["y"][-1]) for trace in chart.data] == [
        ("early", 20.0, 0.5),
        ("late", 20.0, 1.0),
        ("never", 20.0, 0.0),
    ]
    assert reach_chart([]).empty


def test_scores_are_drawn_of_entrants_with_a_completed_run() -> None:
    schedule = schedule_of(6, 2, 2, metric="best_score")
    results = results_of(schedule)
    results.state[..., 1] = PENDING
    chart = score_chart(report_of(schedule, results).score_laws)
    assert_accepted(chart)
    assert {row[0] for row in chart.table.rows} == {trace["name"] for trace in chart.data} == {"e0"}
    results.state[:] = PENDING
    assert score_chart(report_of(schedule, results).score_laws).empty


def test_axes_and_tables_mark_the_better_end_of_an_objective() -> None:
    problem = antenna()
    population = Population(problem, sample_columns(20, 5), "/runs/x")
    assert front_table(population).columns[3:] == tuple(objective.name for objective in problem.objectives)
    gain, *_, cost, _ = problem.objectives
    for chart in (
        population_chart(population, gain, cost),
        compare_curves_chart([("one", [population])], best_of(cost)),
    ):
        assert chart.layout["yaxis"]["title"]["text"] == "cost ↓"


def test_a_constant_objective_is_an_axis_only_on_request() -> None:
    columns = sample_columns(30, 5)
    columns.rewards[columns.scored, 1] = 3.0
    population = Population(antenna(), columns, "/runs/x")

    def names(x: str, y: str, population: Population = population) -> list[str | None]:
        return [objective and objective.name for objective in axes([population], x, y)]

    assert names("", "") == ["gain", "overlap"]
    assert names("sidelobe", "") == ["sidelobe", "gain"]
    assert names("", "sidelobe") == ["gain", "sidelobe"]
    assert names("", "gain") == ["overlap", "gain"]
    # A varying constraint is preferred to a constant objective; without any variation, the declared order holds.
    columns.rewards[columns.scored, 1:4] = 3.0
    assert names("", "", Population(antenna(), columns, "/runs/x")) == ["gain", "overlap"]
    for few in (sample_columns(0, 5), sample_columns(1, 5, failing=0.0), sample_columns(4, 5, failing=1.0)):
        assert names("", "", Population(antenna(), few, "/runs/x")) == ["gain", "sidelobe"]


def test_the_axes_are_the_objectives_of_the_targets() -> None:
    problem = antenna()
    some = Target(name="some", rule="overlap <= 0 and sidelobe <= 4")
    unlock = Target(name="cheap", rule="cost <= 5 and overlap <= 0", unlock=True)
    problem = problem.model_copy(update={"targets": (some, unlock)})
    columns = sample_columns(30, 5)
    assert [o and o.name for o in axes([Population(problem, columns, "/runs/x")], "", "")] == ["cost", "overlap"]
    # Feasible candidates have the same overlap, which makes it no axis.
    columns.rewards[columns.scored, 4] = np.where(np.arange(30) % 2, 0.0, 0.5)[columns.scored]
    assert [o and o.name for o in axes([Population(problem, columns, "/runs/x")], "", "")] == ["cost", "sidelobe"]
    alone = Population(single(), sample_columns(3, 1), "/runs/x")
    assert axes([alone], "", "score") == (single().objectives[0], single().objectives[0])


def test_outliers_and_infeasible_candidates_do_not_set_the_range() -> None:
    columns = sample_columns(200, 5, failing=0.0)
    columns.rewards[:, 4] = 0.0
    columns.rewards[:, 0] = np.linspace(0.0, 14.0, 200)
    columns.rewards[7, 0], columns.rewards[8, 1] = 1e9, -1e9
    columns.rewards[9] = (-5e3, 2.0, 0.5, 3.0, 0.7)  # infeasible
    population = Population(antenna(), columns, "/runs/x")
    chart = population_chart(population, *antenna().objectives[:2])
    spec = chart.spec()
    low, high = spec["layout"]["xaxis"]["range"]
    assert (-1.0 < low < 0.0, 14.0 < high < 15.0, spec["layout"]["yaxis"]["range"][0] > -20.0) == (True, True, True)
    assert spec["note"] == chart.note + " “Fit to data” shows 3 more beyond the axes."
    apart = next(trace for trace in spec["data"] if trace["name"] == "infeasible")
    assert (apart["customdata"], apart["x"]) == ([10], [-5000.0])
    assert_accepted(chart)


def test_positive_data_over_two_decades_has_a_logarithmic_axis() -> None:
    columns = sample_columns(200, 5, failing=0.0)
    columns.rewards[:, 3], columns.rewards[:, 4] = np.logspace(-1, 5, 200), 0.0
    population = Population(antenna(), columns, "/runs/x")
    gain, *_, cost, _ = antenna().objectives
    spec = population_chart(population, gain, cost).spec()
    assert (spec["log"]["y"], spec["layout"]["yaxis"]["type"]) == (True, "log")
    assert spec["layout"]["yaxis"]["range"] == pytest.approx([-1.36, 5.36])
    columns.rewards[:, 3] -= 1.0
    assert "y" not in population_chart(Population(antenna(), columns, "/runs/x"), gain, cost).spec()["log"]
    assert failures_chart(population).spec()["log"] == {}


def test_a_plateau_makes_no_outlier_of_the_rest() -> None:
    assert bulk(np.array([5.0] * 1000 + list(range(20)))) == (0.0, 19.0)
    assert bulk(np.array([np.nan, np.inf])) is None
    assert bulk(np.array([1.0, 2.0, 1e9])) == (1.0, 1e9)
