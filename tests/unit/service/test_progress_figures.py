"""Charts of progress to targets, of tournaments and of large populations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np

from service.dashboard.figures.population import (
    MAX_FRONT,
    MAX_LINES,
    MAX_POINTS,
    Population,
    parallel_chart,
    population_chart,
)
from service.dashboard.figures.progress import MAX_OBJECTIVES, progress_chart
from service.dashboard.figures.tournament import differences_chart
from service.dashboard.pages import environment
from service.dashboard.routes import lineage
from service.dashboard.routes.candidates import shown_objectives
from service.dashboard.routes.lineage import ancestry
from service.dashboard.routes.tournaments import pair_rows
from speciate.domain.target import Target
from speciate.schema.runs import RankedCandidate
from speciate.schema.unlocks import UnlockRecord
from speciate.storage.candidates.arrays import CandidateArrays
from speciate.tournaments.report.measures import Estimate
from speciate.tournaments.report.models import Comparison, MatrixRow, Verdict
from speciate.tournaments.report.results import ENDED, MISSING
from tests.dashboard.samples import antenna, cases, single
from tests.unit.service.figure_samples import assert_accepted, sample_claim, sample_columns
from tests.unit.tournaments.synthetic import report_of, results_of, schedule_of


def _lines(population: Population, axis: str, *claims: UnlockRecord) -> list[dict[str, Any]]:
    return [trace for trace in progress_chart(population, claims).data if trace["yaxis"] == axis]


def test_progress_is_monotone_in_units_and_marks_targets() -> None:
    columns = sample_columns(6, 5, failing=0.0)
    columns.rewards[:] = (0.0, 5.0, 0.5, 3.0, 0.0)
    columns.rewards[:, 0] = (2.0, 6.0, 1.0, 6.0, 8.0, 7.0)
    columns.rewards[:, 1] = (1.0, 5.0, 5.0, 0.5, 4.0, 3.0)
    columns.rewards[3, 4] = 0.7  # infeasible
    columns.targets[[1, 4, 5]] = 1
    population = Population(antenna(), columns, "/runs/x", ((2, "usable"),))
    claims = (sample_claim("usable", 2, "refuted"), sample_claim("usable", 5, "confirmed"))
    chart = progress_chart(population, claims)
    assert_accepted(chart)
    # Of gain, the best candidates meet the target that the best one meets; candidate 2 was refuted.
    everyone, leading, confirmed = _lines(population, "y", *claims)
    assert (everyone["x"], everyone["y"]) == ([1, 2, 5, 6], [2.0, 6.0, 8.0, 8.0])
    assert (leading["x"], leading["y"]) == ([5, 6], [8.0, 8.0])
    assert (confirmed["x"], confirmed["y"].tolist(), confirmed["text"]) == ([6], [8.0], ["usable"])
    _, leading, _ = _lines(population, "y2", *claims)
    assert leading["y"] == [4.0, 3.0, 3.0]
    limits = {(shape["yref"], shape["y0"]) for shape in chart.layout["shapes"]}
    assert limits == {("y", 5.0), ("y", 9.0), ("y2", 2.5)}
    assert all(chart.layout["yaxis"]["range"][0] < limit < chart.layout["yaxis"]["range"][1] for limit in (5.0, 9.0))
    assert chart.layout["annotations"][0]["text"].endswith("usable 5, record 9")
    assert [row[1:] for row in chart.table.rows if row[0] == "sidelobe"] == [(5, 5, 4.0), (6, 6, 3.0)]
    assert progress_chart(Population(antenna(), sample_columns(3, 5, failing=1.0), "/runs/x")).empty


def test_progress_of_noisy_rewards_ends_with_the_value_after_the_end() -> None:
    problem = single().model_copy(update={"stochastic": True})
    (objective,) = problem.space.selected
    columns = sample_columns(20, len(problem.objectives), failing=0.0)
    columns.rewards[5] = 1e6  # one more evaluation of an earlier program, and lucky
    columns.duplicate[5] = True
    best = RankedCandidate(
        id=UUID(int=1), number=3, rewards={objective.name: 0.7}, targets=(), evaluations=5, margin={objective.name: 0.2}
    )
    chart = progress_chart(Population(problem, columns, "/runs/x"), best=best)
    assert_accepted(chart)
    final = chart.data[-1]
    assert (final["x"], final["y"], final["error_y"]["array"]) == ([20], [0.7], [0.2])
    assert all(max(trace["y"]) < 1e6 for trace in chart.data)
    assert "evaluations after the end" in chart.note


def test_the_best_candidate_is_marked_beside_the_best_of_each_objective() -> None:
    columns = sample_columns(6, 5, failing=0.0)
    columns.rewards[:, 4] = 0.0
    rewards = dict(zip(antenna().space.names, columns.rewards[2].tolist(), strict=True))
    best = RankedCandidate(id=UUID(int=1), number=3, rewards=rewards, targets=())
    chart = progress_chart(Population(antenna(), columns, "/runs/x"), best=best)
    assert_accepted(chart)
    marked = {trace["yaxis"]: trace["y"] for trace in chart.data if trace.get("marker", {}).get("symbol") == "diamond"}
    assert (marked["y"], marked["y2"]) == ([rewards["gain"]], [rewards["sidelobe"]])
    assert "from any candidate" in chart.caption


def test_without_a_feasible_candidate_progress_is_that_of_the_constraints() -> None:
    columns = sample_columns(3, 5, failing=0.0)
    columns.rewards[:, 4] = (0.5, 0.25, 0.75)
    (line,) = progress_chart(Population(antenna(), columns, "/runs/x")).data
    assert line["y"] == [0.5, 0.25, 0.25]


def test_many_objectives_are_in_the_table_but_not_all_drawn() -> None:
    problem = antenna()
    more = problem.objectives[0].model_copy(update={"name": "width"})
    problem = problem.model_copy(update={"objectives": (*problem.objectives, more)})
    columns = sample_columns(20, 6, failing=0.0)
    columns.rewards[:, 4] = 0.0
    chart = progress_chart(Population(problem, columns, "/runs/x"))
    assert len(chart.layout["annotations"]) == MAX_OBJECTIVES
    assert {row[0] for row in chart.table.rows} == {"gain", "sidelobe", "bandwidth", "cost", "width"}


def test_tournament_names_are_wrapped_on_a_narrow_screen() -> None:
    estimate = Estimate(value=0.25, low=0.0, high=0.5, problems=3, runs=6)
    names = {"a": "vector-max-at-k-on-islands", "b": "grpo"}
    facts = {"difference": estimate, "verdict": Verdict.NOT_ENOUGH_EVIDENCE, "p_value": 0.5, "holm": 0.5}
    comparison = Comparison.model_construct(**names, **facts)
    wide, narrow = (differences_chart([comparison], "pass_1", narrow=narrow) for narrow in (False, True))
    assert "ticktext" not in wide.layout["yaxis"]
    lines = narrow.layout["yaxis"]["ticktext"][0].split("<br>")
    assert lines == ["vector-max-at-k-on-is…", "− grpo", "not enough evidence"]
    assert narrow.layout["yaxis"]["tickvals"] == narrow.data[0]["y"] == wide.data[0]["y"]
    short = differences_chart([comparison.model_copy(update={"a": "vpo"})], "pass_1", narrow=True)
    assert short.layout["yaxis"]["ticktext"] == ["vpo − grpo<br>not enough evidence"]
    for chart in (wide, narrow, differences_chart([], "pass_1", narrow=True)):
        assert_accepted(chart)


def test_the_axis_of_differences_includes_zero_and_pads_its_rows() -> None:
    estimate = Estimate(value=0.25, problems=3, runs=6)
    facts = {"difference": estimate, "verdict": Verdict.NOT_ENOUGH_EVIDENCE, "p_value": 0.5, "holm": 0.5}
    comparisons = [Comparison.model_construct(a=name, b="grpo", **facts) for name in ("vpo", "base")]
    for narrow in (False, True):
        chart = differences_chart(comparisons, "pass_1", narrow=narrow)
        assert chart.data[0]["error_x"]["array"] == [None, None], "a withheld interval is no interval of width 0"
        layout = chart.layout
        assert layout["xaxis"]["rangemode"] == "tozero"
        assert layout["yaxis"]["range"] == [-0.5, 1.5]


def test_objectives_of_the_unlock_rule_come_first() -> None:
    problem = cases(30)
    unlock = Target(name="most", rule="case_20 >= 1 and case_9 >= 1", unlock=True)
    problem = problem.model_copy(update={"targets": (Target(name="some", rule="case_7 >= 1"), unlock)})

    def names(*chosen: str, sort: str = "") -> list[str]:
        return [objective.name for objective in shown_objectives(problem, chosen, sort)]

    assert names() == ["case_20", "case_9", "case_7", "case_0", "case_1", "case_2"]
    assert names(sort="case_11") == ["case_11", "case_20", "case_9", "case_7", "case_0", "case_1"]
    assert names("case_4", "case_3") == ["case_3", "case_4"]
    assert names("case_4", sort="case_5") == ["case_4", "case_5"]


def test_large_populations_are_thinned_and_their_data_is_not() -> None:
    columns = sample_columns(20_000, 5)
    columns.rewards[::2, 4] = 0.0
    columns.rewards[:8000, 1] = columns.rewards[:8000, 0] - 1.0  # a long front
    population = Population(antenna(), columns, "/runs/x")
    chart = population_chart(population, *population.problem.objectives[:2])
    shown = {trace["name"].partition(" ")[0]: len(trace["x"]) for trace in chart.data}
    assert shown["dominated"] == shown["infeasible"] == MAX_POINTS
    assert len(chart.table.rows) == len(population.front) > MAX_FRONT
    assert MAX_FRONT <= shown["front"] < MAX_FRONT + 20
    assert f"front ({len(population.front):,})" in {trace["name"] for trace in chart.data}


def test_a_long_front_is_thinned_but_keeps_the_best_candidate() -> None:
    columns = sample_columns(1000, 5, failing=0.0)
    columns.rewards[:, 0] = columns.rewards[:, 1]  # more gain has larger sidelobes: no candidate dominates another
    columns.rewards[:, 4] = 0.0
    population = Population(antenna(), columns, "/runs/x")
    assert len(population.front) > MAX_LINES
    chart = parallel_chart(population)
    assert MAX_LINES <= len(set(chart.data[0]["customdata"])) <= MAX_LINES + 12
    assert "are not drawn" in chart.note
    assert_accepted(chart)
    (best,) = (trace for trace in chart.data if trace["name"] == "best")
    assert best["customdata"][0] == columns.number[population.ranked_front[0]]
    assert best["customdata"][0] in chart.data[0]["customdata"]


def test_a_sampled_front_keeps_extremes_and_the_best_of_each_target() -> None:
    columns = sample_columns(3000, 5, failing=0.0)
    columns.rewards[:, 0] = columns.rewards[:, 1]
    columns.rewards[:, 4] = 0.0
    columns.targets[[1500, 1501]] = (1, 2)
    columns.rewards[[1500, 1501], 2] = 2.0
    population = Population(antenna(), columns, "/runs/x")
    drawn = population.drawn_front(20)
    assert len(population.front) > 100
    assert len(drawn) < 40
    assert {1500, 1501} <= {*drawn.tolist()}
    front, shown = columns.rewards[population.front], columns.rewards[drawn]
    assert (shown.min(axis=0) == front.min(axis=0)).all()
    assert (shown.max(axis=0) == front.max(axis=0)).all()
    assert drawn.tolist() == [row for row in population.front.tolist() if row in drawn]


def test_a_front_is_extended_to_that_of_all_candidates() -> None:
    columns = sample_columns(600, 5)
    columns.rewards[::3, 4] = 0.0
    columns.rewards[300:330] = columns.rewards[:30]  # equal ones
    columns.duplicate[400:420] = True
    whole, known = columns.front(antenna().space), np.empty(0, dtype=np.int64)
    for start, end in ((0, 1), (1, 250), (250, 250), (250, 599), (599, 600)):
        part = CandidateArrays(**{name: values[:end] for name, values in vars(columns).items()})
        known = part.front(antenna().space, known, start)
    assert known.tolist() == whole.tolist()


def test_an_entrant_without_an_ended_run_has_not_failed_the_problem() -> None:
    rows = [MatrixRow(problem=name, successes=(1, 0), runs=(1, ended)) for name, ended in (("a", 1), ("b", 0))]
    found = pair_rows(tuple(rows), 0, 1)
    assert found["only-a"] == [("a", "1/1", "0/1")]
    assert found["not-tried"] == [("b", "1/1", "0/0")]


def test_no_candidate_of_the_front_is_dominated() -> None:
    population = Population(antenna(), sample_columns(200, 5), "/runs/x")
    points = population.problem.space.normalise(population.columns.rewards)
    for row in population.front:
        better = np.all(points >= points[row], axis=1) & np.any(points > points[row], axis=1)
        assert not better[population.columns.scored].any()


def test_ancestry_ends_at_the_root() -> None:
    population = Population(antenna(), sample_columns(40, 5), "/runs/x")
    assert [int(population.columns.number[row]) for row in ancestry(population, 37)] == [37, 18, 9, 4, 2, 1]


def test_the_lineage_of_long_lines_is_cut() -> None:
    columns = sample_columns(2, 1, failing=0.0)
    columns.parent[:] = (0, 1)
    queries = SimpleNamespace(programs=lambda _, numbers: {n: f"[{n}" + ", 1" * 100_000 for n in numbers})
    view = SimpleNamespace(
        population=Population(single(), columns, "/runs/x"),
        problem=single(),
        run=SimpleNamespace(id="x"),
        dashboard=SimpleNamespace(stores=SimpleNamespace(queries=queries)),
    )
    step = lineage._steps(view, [0, 1])[1]  # type: ignore[arg-type]
    assert sum(map(len, step["diff"])) <= 20_000
    assert step["cut"]


def test_a_pair_counts_what_its_comparison_counts() -> None:
    results = results_of(schedule := schedule_of(6, 2, 2))
    results.state[:], results.reached[:] = ENDED, False
    results.reached[:, 0, 0], results.state[:, 0, 1] = True, MISSING
    report = report_of(schedule, results)
    (compared,) = report.standings.comparisons
    names = report.matrix.entrants
    shown = (
        environment()
        .get_template("pair.html")
        .render(
            theme="",
            path="/x",
            here="/x",
            me=None,
            record=SimpleNamespace(slug="x"),
            report=report,
            comparison=compared,
            standing={each.entrant: each for each in report.standings.standings},
            most=300,
            rows=pair_rows(report.matrix.rows, names.index(compared.a), names.index(compared.b)),
        )
    )
    assert "reached by only B</dt><dd>0<" in shown
    assert "reached by neither</dt><dd>6<" in shown
