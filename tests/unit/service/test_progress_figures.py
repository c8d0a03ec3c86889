"""Charts of progress to targets, of tournaments and of large populations."""

from __future__ import annotations

import json

import numpy as np
import pytest

from service.dashboard.figures.lineage import MAX_NODES, ancestry, generations, lineage_chart
from service.dashboard.figures.parallel import MAX_LINES, parallel_chart
from service.dashboard.figures.population import (
    MAX_POINTS,
    Population,
    population_chart,
)
from service.dashboard.figures.progress import throughput_chart
from service.dashboard.figures.targets import targets_chart
from service.dashboard.figures.tournament import differences_chart
from service.dashboard.routes.candidates import shown_objectives
from service.dashboard.routes.tournaments import pair_rows
from speciate.domain.target import Target
from speciate.tournaments.report.measures import Estimate
from speciate.tournaments.report.models import Comparison, MatrixRow, Verdict
from tests.dashboard.samples import antenna, cases, single
from tests.unit.service.figure_samples import assert_accepted, sample_claim, sample_columns

_REFUTED = "met, refuted by a second evaluation"


def test_progress_is_the_distance_of_the_nearest_candidate_so_far() -> None:
    columns = sample_columns(6, 5, failing=0.0)
    columns.rewards[:] = (0.0, 5.0, 0.5, 3.0, 0.0)
    columns.rewards[:, 0] = (2.0, 6.0, 1.0, 6.0, 8.0, 7.0)
    columns.rewards[3] = (6.5, 5.0, 0.5, 3.0, 0.7)  # infeasible
    columns.targets[[1, 4, 5]] = 1
    population = Population(antenna(), columns, "/runs/x")
    chart = targets_chart(population, [sample_claim("usable", 2, "refuted"), sample_claim("usable", 5, "confirmed")])
    assert_accepted(chart)
    record, usable, confirmed, refuted = chart.data
    assert (record["name"], usable["name"]) == ("record (unlocks)", "usable")
    # Candidate 2 was refuted, so the next to meet the target is candidate 5.
    assert usable["customdata"].tolist() == [1, 5, 5]
    assert usable["x"].tolist() == [1, 5, 6]
    assert usable["y"].tolist() == pytest.approx([1 - 3 / 12 / 2, 1.0, 1.0])
    assert record["y"].tolist() == pytest.approx([1 - (g / 12 + 0.25) / 3 for g in (7, 3, 1, 1)])
    assert (confirmed["x"], confirmed["marker"]["symbol"], refuted["customdata"]) == ([6], "star", [2])
    rows = [row for row in chart.table.rows if row[0] == "usable"]
    assert [(row[1], row[4]) for row in rows] == [(5, "confirmed"), (2, _REFUTED), (1, "")]
    assert chart.table.links[0] == f"/runs/x/candidates/{chart.table.rows[0][1]}"
    assert targets_chart(Population(antenna(), sample_columns(3, 5, failing=1.0), "/runs/x"), []).empty


def test_a_violated_constraint_keeps_a_candidate_from_a_target_that_does_not_name_it() -> None:
    problem = antenna().model_copy(update={"targets": (Target(name="high", rule="gain >= 9", unlock=True),)})
    columns = sample_columns(3, 5, failing=0.0)
    columns.rewards[:, 0], columns.rewards[:, 4] = 10.0, (0.5, 0.25, 0.0)
    columns.targets[2] = 1
    (line,) = targets_chart(Population(problem, columns, "/runs/x"), []).data
    assert line["y"].tolist() == pytest.approx([0.5, 0.75, 1.0, 1.0])
    assert line["text"][-1] == "met"
    # A candidate that its stage kept from a target satisfies the rule without meeting it.
    columns.targets[2] = 0
    (line,) = targets_chart(Population(problem, columns, "/runs/x"), []).data
    assert line["text"][-1] == "distance 1e-09"


def test_many_targets_are_in_the_table_but_not_all_drawn() -> None:
    targets = (*(Target(name=f"t{i}", rule=f"gain >= {i + 20}") for i in range(9)), *antenna().targets)
    problem = antenna().model_copy(update={"targets": targets})
    chart = targets_chart(Population(problem, sample_columns(20, 5), "/runs/x"), [])
    assert [trace["name"] for trace in chart.data] == ["record (unlocks)", "t0", "t1", "t2", "t3", "t4"]
    assert "5 targets are not drawn" in chart.note
    assert {row[0] for row in chart.table.rows} == {target.name for target in targets}


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
        layout = differences_chart(comparisons, "pass_1", narrow=narrow).layout
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


def test_large_populations_are_thinned_and_their_front_is_not() -> None:
    columns = sample_columns(20_000, 5)
    columns.rewards[::2, 4] = 0.0
    population = Population(antenna(), columns, "/runs/x")
    chart = population_chart(population)
    shown = {trace["name"].partition(" ")[0]: len(trace["x"]) for trace in chart.data}
    assert shown["dominated"] == shown["infeasible"] == MAX_POINTS
    assert shown["front"] == len(population.front) == len(chart.table.rows)
    tree = lineage_chart(population)
    assert len(tree.data[1]["x"]) <= MAX_NODES
    assert len(json.dumps(tree.spec())) < 2_000_000


def test_throughput_counts_candidates_committed_out_of_order() -> None:
    columns = sample_columns(3, 1, failing=0.0)
    columns.at[0] += 5.0
    rows = throughput_chart(Population(single(), columns, "/runs/x")).table.rows
    assert sum(int(scored) for _, scored, _ in rows) == 3


def test_a_long_front_is_thinned_but_keeps_the_best_of_every_objective() -> None:
    columns = sample_columns(1000, 5, failing=0.0)
    columns.rewards[:, 0] = columns.rewards[:, 1]  # more gain has larger sidelobes: no candidate dominates another
    columns.rewards[:, 4] = 0.0
    population = Population(antenna(), columns, "/runs/x")
    assert len(population.front) > MAX_LINES
    chart = parallel_chart(population)
    assert MAX_LINES <= len(set(chart.data[0]["customdata"])) <= MAX_LINES + 5
    assert "are not drawn" in chart.note
    assert_accepted(chart)
    for name, row in (("bandwidth", np.argmax(columns.rewards[:, 2])), ("cost", np.argmin(columns.rewards[:, 3]))):
        best = next(trace for trace in chart.data[1:] if name in trace["name"])
        assert best["customdata"][0] == columns.number[row]


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
    assert generations(population)[36] == 5
