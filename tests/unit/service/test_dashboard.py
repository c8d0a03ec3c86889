"""Figures, column cache, forms, live views and formatting, without a browser."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import plotly.graph_objects as go
import pytest
from pydantic import ValidationError
from starlette.requests import Request

from service.dashboard.charts import Chart, ChartCache, Table, thinned, to_json
from service.dashboard.context import PopulationCache
from service.dashboard.fields import build_fields, read_strategy, read_values, strategy_context
from service.dashboard.figures.archive import MAX_ISLANDS, feature_map_chart, tradeoff_map_chart
from service.dashboard.figures.comparison import (
    HYPERVOLUME,
    best_of,
    compare_fronts_chart,
    compare_groups_chart,
    compare_runs_chart,
)
from service.dashboard.figures.lineage import MAX_NODES, ancestry, generations, lineage_chart
from service.dashboard.figures.parallel import MAX_LINES, parallel_chart
from service.dashboard.figures.population import (
    MAX_POINTS,
    Population,
    axes,
    best_matrix,
    front_table,
    population_chart,
)
from service.dashboard.figures.progress import best_so_far_chart, failures_chart, throughput_chart, tokens_chart
from service.dashboard.figures.solved import solved_objectives_chart
from service.dashboard.figures.targets import targets_chart
from service.dashboard.figures.tournament import differences_chart, reach_chart, standings_chart
from service.dashboard.formatting import duration, number
from service.dashboard.forms import form_errors, read_form
from service.dashboard.live import LivePart, LiveViews
from service.dashboard.pages import _FLUSH, _compressed, _sections, fragment, macro
from service.dashboard.routes.candidates import shown_objectives
from service.dashboard.routes.events import describe_event
from service.dashboard.routes.new_policy import policy_form_errors, read_submission
from service.dashboard.routes.new_tournament import parse_seeds
from service.dashboard.routes.tournaments import pair_rows
from service.dashboard.scales import bulk
from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.policy import Policy, Sampling
from speciate.domain.target import ClaimState, Target
from speciate.domain.tournament import Tournament
from speciate.policies import build_client
from speciate.schema.candidates import EliteRecord
from speciate.schema.runs import EventRecord, RankedCandidate
from speciate.schema.unlocks import UnlockRecord
from speciate.search.strategies import STRATEGIES
from speciate.storage.candidates.arrays import CandidateArrays
from speciate.tournaments.report.measures import Estimate, Reached
from speciate.tournaments.report.models import Comparison, MatrixRow, Standing, Verdict
from tests.dashboard.samples import antenna, cases, single

_REFUTED = "met, refuted by a second evaluation"
_RNG = np.random.default_rng(7)
_BUNDLED = set(re.findall(r"src/traces/(\w+)", Path("scripts/plotly/entry.js").read_text()))


def _columns(n: int, d: int, *, failing: float = 0.1) -> CandidateArrays:
    rewards = _RNG.random((n, d))
    failed = _RNG.random(n) < failing
    rewards[failed] = np.nan
    counted = np.arange(1, n + 1)
    return CandidateArrays(
        number=counted,
        evaluations=counted,
        tokens=counted * 100,
        seconds=counted * 0.1,
        at=1.8e9 + counted * 0.5,
        island=counted % 3,
        parent=counted // 2,
        rewards=rewards,
        failure=tuple("timeout: <b>wall</b>" if f else "" for f in failed),
        duplicate=np.zeros(n, dtype=np.bool_),
        seed=counted == 1,
        targets=np.zeros(n, dtype=np.int64),
    )


def _elites(problem: Any) -> list[EliteRecord]:
    rewards = {objective.name: 0.5 for objective in problem.objectives}
    names = ["w0", "w10", "declared", "@3", *(f"length:{i},nesting:{j}" for i in range(3) for j in range(2))]
    return [
        EliteRecord(island=i, cell=cell, number=i + 1, candidate_id=uuid4(), fitness=1.0, rewards=rewards)
        for i in range(5)
        for cell in names
    ]


def _accepted(chart: Chart) -> None:
    """Check a chart against the bundled traces and Plotly's schema, with a colour for every CSS token."""

    def coloured(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("--"):
            return "#123456"
        if isinstance(value, list):
            return [coloured(item) for item in value]
        return {name: coloured(item) for name, item in value.items()} if isinstance(value, dict) else value

    spec = coloured(json.loads(json.dumps(chart.spec(), allow_nan=False)))
    go.Figure(data=spec["data"], layout=spec["layout"])
    assert {trace["type"] for trace in spec["data"]} <= _BUNDLED
    assert chart.note
    assert len(chart.table.columns) >= 2
    assert all(len(row) == len(chart.table.columns) for row in chart.table.rows)


@pytest.mark.parametrize(("n", "failing"), [(0, 0.0), (1, 0.0), (1, 1.0), (60, 0.2), (60, 1.0)])
def test_plotly_accepts_every_figure(n: int, failing: float) -> None:
    for problem in (antenna(), single(), cases(30)):
        population = Population(problem, _columns(n, len(problem.objectives), failing=failing), "/runs/x")
        objective = problem.objectives[0]
        for chart in (
            population_chart(population),
            population_chart(population, "cost", "bandwidth"),
            parallel_chart(population),
            solved_objectives_chart(population),
            best_so_far_chart(population),
            targets_chart(population, [_claim(problem.targets[0].name, 1, state) for state in ClaimState]),
            throughput_chart(population),
            failures_chart(population),
            tokens_chart(population),
            lineage_chart(population),
            lineage_chart(population, "generation", 5),
            compare_runs_chart([("<b>one</b>", population), ("two", population)], best_of(objective)),
            compare_runs_chart([("<b>one</b>", population), ("two", population)], HYPERVOLUME),
            compare_fronts_chart([("<b>one</b>", [population, population])], objective, problem.objectives[-1]),
            compare_groups_chart([("<b>one</b>", [population, population]), ("two", [population])], best_of(objective)),
            feature_map_chart(_elites(problem), objective, "/runs/x", across=2),
            tradeoff_map_chart(_elites(problem), objective, "/runs/x"),
            feature_map_chart([], objective, "/runs/x"),
        ):
            _accepted(chart)
        assert len(best_matrix(population, _best()).rows) in {0, min(12, len(problem.objectives))}


def _best(*targets: str) -> RankedCandidate:
    return RankedCandidate(id=UUID(int=1), number=1, rewards={}, targets=targets)


def test_an_infeasible_candidate_is_never_the_best() -> None:
    columns = _columns(3, 5, failing=0.0)
    columns.rewards[:, 0], columns.rewards[:, 4] = (3.0, 9.0, 4.0), (0.0, 0.1, 0.0)
    population = Population(antenna(), columns, "/runs/x")
    assert [row for row in best_so_far_chart(population).table.rows if row[0] == "gain"] == [
        ("gain", 1, 3.0),
        ("gain", 3, 4.0),
    ]
    assert compare_runs_chart([("one", population)], best_of(population.problem.objectives[0])).table.rows[:2] == [
        ("one", 1, 3.0),
        ("one", 3, 4.0),
    ]
    assert best_matrix(population, _best()).rows[0][:3] == ["gain", 3, 4.0]


def test_the_best_by_objective_meets_the_targets_of_the_best_candidate() -> None:
    columns = _columns(4, 5, failing=0.0)
    columns.rewards[:, 0], columns.rewards[:, 4] = (9.0, 5.0, 6.0, 7.0), 0.0
    columns.targets[:] = (0b00, 0b01, 0b11, 0b01)
    population = Population(antenna(), columns, "/runs/x")

    def best_in_gain(*targets: str, refuted: tuple[tuple[int, str], ...] = ()) -> int:
        return int(best_matrix(replace(population, refuted=refuted), _best(*targets)).rows[0][1] or 0)

    assert [best_in_gain(), best_in_gain("usable"), best_in_gain("usable", "record")] == [1, 4, 3]
    assert best_in_gain("usable", refuted=((4, "usable"),)) == 3
    assert best_in_gain("usable", refuted=((4, "record"),)) == 4
    assert best_matrix(replace(population, refuted=((3, "record"),)), _best("record")).rows == []


def test_of_equals_the_best_by_objective_is_not_dominated() -> None:
    columns = _columns(3, 5, failing=0.0)
    columns.rewards[:] = ((7.0, 5.0, 0.5, 9.0, 0.0), (7.0, 4.0, 0.6, 9.0, 0.0), (6.0, 4.0, 0.6, 9.0, 0.0))
    rows = best_matrix(Population(antenna(), columns, "/runs/x"), _best()).rows
    assert [row[:2] for row in rows[:3]] == [["gain", 2], ["sidelobe", 2], ["bandwidth", 2]]


def test_a_refuted_target_does_not_count_for_the_best_candidate() -> None:
    columns = _columns(3, 5, failing=0.0)
    # No candidate dominates another: gain and sidelobe are in conflict.
    columns.rewards[:, 0], columns.rewards[:, 1], columns.rewards[:, 2:] = (3.0, 2.0, 1.0), (9.0, 8.0, 7.0), 0.0
    columns.targets[:] = (0b00, 0b11, 0b01)
    population = Population(antenna(), columns, "/runs/x")

    def best(*refuted: tuple[int, str]) -> tuple[Any, Any]:
        found = replace(population, refuted=refuted)
        gains = [row[2] for row in best_so_far_chart(found).table.rows if row[0] == "gain"]
        return gains[-1], front_table(found).rows[0][0]

    assert best() == (2.0, 2)
    assert best((2, "record"), (2, "usable")) == (1.0, 3)
    assert columns.targets.tolist() == [0b00, 0b11, 0b01]


@pytest.mark.parametrize(("direction", "best"), [(Direction.MAXIMIZE, 2), (Direction.MINIMIZE, 1)])
def test_cells_of_a_third_feature_share_a_square_with_the_best(direction: Direction, best: int) -> None:
    objective = antenna().objectives[0].model_copy(update={"direction": direction})
    elites = [
        EliteRecord(
            island=island,
            cell=f"a:0,b:1,c:{c}",
            number=number,
            candidate_id=uuid4(),
            fitness=0.0,
            rewards={"gain": gain},
        )
        for island in range(MAX_ISLANDS + 2)
        for number, (c, gain) in enumerate(((0, 1.0), (1, 5.0), (2, 3.0), (3, 5.0), (4, 1.0)), start=1)
    ]
    chart = feature_map_chart(elites, objective, "/runs/x")
    assert [row[1:4] for row in chart.table.rows] == [("a 0", "b 1", best)] * (MAX_ISLANDS + 2)
    assert len(chart.data) == MAX_ISLANDS
    assert "Cells that differ only in c share a square: it shows the best gain." in chart.note
    assert chart.note.endswith("Islands that are not drawn: 2; the table has them.")
    assert "share" not in feature_map_chart(_elites(antenna()), objective, "/runs/x").note
    assert "not drawn" not in feature_map_chart(_elites(antenna()), objective, "/runs/x").note


def test_an_infeasible_candidate_solves_no_case() -> None:
    plain = cases(30)
    limit = Objective(name="excess", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT)
    columns = _columns(3, 31, failing=0.0)
    columns.rewards[:] = 0.0
    columns.rewards[0, :20], columns.rewards[0, 30] = 1.0, 0.5  # solves most cases but is infeasible
    columns.rewards[1, 5] = 1.0
    limited = type(plain).model_validate(plain.model_dump() | {"objectives": (*plain.objectives, limit)})
    population = Population(limited, columns, "/runs/x")
    assert best_so_far_chart(population).table.rows[-1] == (3, 1, 1)
    assert [row[:3] for row in solved_objectives_chart(population).table.rows if row[2]] == [
        ("case_5", "best candidate", 1)
    ]
    assert solved_objectives_chart(population).note.endswith(" Infeasible candidates do not count.")
    assert "nfeasible" not in solved_objectives_chart(Population(plain, _columns(3, 30), "/runs/x")).note


def test_a_group_mean_spans_the_evaluations_at_which_all_its_runs_have_a_value() -> None:
    def population(*gains: float) -> Population:
        columns = _columns(len(gains), 5, failing=0.0)
        columns.rewards[:, 0], columns.rewards[:, 4] = gains, 0.0
        return Population(antenna(), columns, "/runs/x")

    late = population(1.0, 1.0, 9.0)
    late.columns.rewards[0, 4] = 0.5  # infeasible: the run has a value from its second candidate on
    objective = antenna().objectives[0]
    chart = compare_groups_chart(
        [("both", [population(1.0, 3.0, 4.0, 8.0), late]), ("alone", [population(2.0)])], best_of(objective)
    )
    assert chart.table.rows == [
        ("both", 2, 2, 2.0, 1.0, 3.0),
        ("both", 2, 3, 6.5, 4.0, 9.0),
        ("alone", 1, 1, 2.0, 2.0, 2.0),
    ]
    assert [trace["name"] for trace in chart.data if trace.get("showlegend", True)] == ["both (2)", "alone (1)"]
    assert "Left out" not in chart.note
    never = population(5.0)
    never.columns.rewards[0, 4] = 0.5
    chart = compare_groups_chart([("two", [population(2.0), never])], best_of(objective))
    assert chart.table.rows == [("two", 1, 1, 2.0, 2.0, 2.0)]
    assert " Left out: 1 run without a feasible candidate." in chart.note


def test_fronts_of_runs_are_joined_where_they_are_best_in_both_objectives() -> None:
    columns = _columns(5, 5, failing=0.0)
    columns.rewards[:] = (5.0, 5.0, 0.5, 3.0, 0.0)
    columns.rewards[:, 0] = (4.0, 6.0, 5.0, 3.0, 9.0)
    columns.rewards[:, 3] = (1.0, 8.0, 9.0, 0.5, 0.1)
    columns.rewards[2, 2] = 0.9  # on the front for its bandwidth
    columns.rewards[4, 4] = 0.5  # infeasible
    population = Population(antenna(), columns, "/runs/x")
    named = {o.name: o for o in antenna().objectives}
    chart = compare_fronts_chart(
        [("%{x}", [population]), ("none", [Population(antenna(), _columns(0, 5), "/")])], named["gain"], named["cost"]
    )
    _accepted(chart)
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
        [("x", [Population(antenna(), _columns(2, 5, failing=1.0), "/")])], *list(named.values())[:2]
    ).empty


def test_hypervolumes_of_runs_are_compared() -> None:
    columns = _columns(400, 5, failing=0.2)
    columns.rewards[columns.scored, 4] = 0.0
    population = Population(antenna(), columns, "/runs/x")
    chart = compare_runs_chart([("one", population)], HYPERVOLUME)
    assert chart.name == "hypervolume"
    values = [row[2] for row in chart.table.rows]
    assert values == sorted(values)
    assert 0 < values[-1] < 1
    assert chart.table.rows[-1][1] == 400
    assert compare_runs_chart([("one", Population(antenna(), _columns(0, 5), "/"))], HYPERVOLUME).empty


def test_tournament_curves_extend_to_the_last_evaluation() -> None:
    def curve(entrant: str, spent: tuple[float, ...], share: tuple[float, ...], sound: float | None) -> Reached:
        return Reached(
            entrant=entrant, unit="evaluations", spent=spent, share=share, pairs=4, censored=2, sound_until=sound
        )

    early, late = curve("early", (2.0, 7.0), (0.25, 0.5), 20.0), curve("late", (18.0,), (1.0,), None)
    chart = reach_chart([early, late, curve("never", (), (), 20.0)])
    _accepted(chart)
    assert [(trace["name"], trace["x"][-1], trace["y"][-1]) for trace in chart.data] == [
        ("early", 20.0, 0.5),
        ("late", 20.0, 1.0),
        ("never", 20.0, 0.0),
    ]
    assert reach_chart([]).empty


def test_axes_and_tables_mark_the_better_end_of_an_objective() -> None:
    problem = antenna()
    population = Population(problem, _columns(20, 5), "/runs/x")
    table = best_matrix(population, _best())
    assert table.columns[2:] == (
        "gain ↑",
        "sidelobe ↓",
        "bandwidth ↑",
        "cost ↓",
        "overlap ↓",
    )
    cost = problem.objectives[3]
    for chart in (
        population_chart(population, "gain", "cost"),
        lineage_chart(population, "cost"),
        compare_runs_chart([("one", population)], best_of(cost)),
    ):
        assert chart.layout["yaxis"]["title"]["text"] == "cost ↓"
    assert lineage_chart(population, "generation").layout["yaxis"]["title"]["text"] == "generation"


def test_a_constant_objective_is_an_axis_only_on_request() -> None:
    columns = _columns(30, 5)
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
    for few in (_columns(0, 5), _columns(1, 5, failing=0.0), _columns(4, 5, failing=1.0)):
        assert names("", "", Population(antenna(), few, "/runs/x")) == ["gain", "sidelobe"]


def test_the_axes_are_the_objectives_of_the_targets() -> None:
    problem = antenna()
    some = Target(name="some", rule="overlap <= 0 and sidelobe <= 4")
    unlock = Target(name="cheap", rule="cost <= 5 and overlap <= 0", unlock=True)
    problem = problem.model_copy(update={"targets": (some, unlock)})
    columns = _columns(30, 5)
    assert [o and o.name for o in axes([Population(problem, columns, "/runs/x")], "", "")] == ["cost", "overlap"]
    # Feasible candidates have the same overlap, which makes it no axis.
    columns.rewards[columns.scored, 4] = np.where(np.arange(30) % 2, 0.0, 0.5)[columns.scored]
    assert [o and o.name for o in axes([Population(problem, columns, "/runs/x")], "", "")] == ["cost", "sidelobe"]
    alone = Population(single(), _columns(3, 1), "/runs/x")
    assert axes([alone], "", "score") == (single().objectives[0], single().objectives[0])


def test_outliers_and_infeasible_candidates_do_not_set_the_range() -> None:
    columns = _columns(200, 5, failing=0.0)
    columns.rewards[:, 4] = 0.0
    columns.rewards[:, 0] = np.linspace(0.0, 14.0, 200)
    columns.rewards[7, 0], columns.rewards[8, 1] = 1e9, -1e9
    columns.rewards[9] = (-5e3, 2.0, 0.5, 3.0, 0.7)  # infeasible
    population = Population(antenna(), columns, "/runs/x")
    chart = population_chart(population, "gain", "sidelobe")
    spec = chart.spec()
    low, high = spec["layout"]["xaxis"]["range"]
    assert (low < 0.0, 14.0 < high < 15.0, spec["layout"]["yaxis"]["range"][0] > -20.0) == (True, True, True)
    assert spec["note"] == chart.note + " 3 beyond the axes are drawn at the edge."
    marks = sorted(mark["text"] for mark in spec["layout"]["annotations"])
    assert marks == sorted(["1 beyond →", "↓ 1 beyond", "← 1 beyond"])
    apart = next(trace for trace in spec["data"] if trace["name"] == "infeasible")
    assert (apart["customdata"], apart["x"]) == ([10], [0.0])
    assert apart["text"] == ["<br>beyond the axis: gain -5000"]
    front = next(trace for trace in spec["data"] if trace["name"].startswith("front"))
    assert 8 in front["customdata"]
    assert max(front["x"]) == 14.0
    _accepted(chart)
    assert "annotations" not in population_chart(Population(antenna(), _columns(2, 5), "/runs/x")).layout


def test_positive_data_over_two_decades_has_a_logarithmic_axis() -> None:
    columns = _columns(200, 5, failing=0.0)
    columns.rewards[:, 3], columns.rewards[:, 4] = np.logspace(-1, 5, 200), 0.0
    population = Population(antenna(), columns, "/runs/x")
    chart = population_chart(population, "gain", "cost")
    spec = chart.spec()
    assert (spec["log"]["y"], spec["layout"]["yaxis"]["type"]) == (True, "log")
    assert spec["layout"]["yaxis"]["range"] == pytest.approx([-1.18, 5.18])
    assert spec["note"] == chart.note
    linear = chart.spec("")
    assert linear["log"]["y"] is False
    assert "type" not in linear["layout"]["yaxis"]
    assert linear["note"].endswith(" beyond the axes are drawn at the edge.")
    columns.rewards[:, 3] -= 1.0
    assert "y" not in population_chart(Population(antenna(), columns, "/runs/x"), "gain", "cost").spec("y")["log"]
    spent = tokens_chart(Population(antenna(), _columns(200, 5), "/runs/x"))
    assert spent.spec()["log"] == {"x": False, "y": False}
    assert spent.spec("y")["layout"]["yaxis"]["type"] == "log"
    assert throughput_chart(population).spec()["log"] == {}


def test_a_plateau_makes_no_outlier_of_the_rest() -> None:
    assert bulk(np.array([5.0] * 1000 + list(range(20)))) == (0.0, 19.0)
    assert bulk(np.array([np.nan, np.inf])) is None
    assert bulk(np.array([1.0, 2.0, 1e9])) == (1.0, 1e9)


def _claim(target: str, number: int, state: str) -> UnlockRecord:
    return UnlockRecord.model_construct(
        target=target, number=number, evaluations=number + 1, state=ClaimState(state), unlock=False
    )


def test_progress_is_the_distance_of_the_nearest_candidate_so_far() -> None:
    columns = _columns(6, 5, failing=0.0)
    columns.rewards[:] = (0.0, 5.0, 0.5, 3.0, 0.0)
    columns.rewards[:, 0] = (2.0, 6.0, 1.0, 6.0, 8.0, 7.0)
    columns.rewards[3] = (6.5, 5.0, 0.5, 3.0, 0.7)  # infeasible
    columns.targets[[1, 4, 5]] = 1
    population = Population(antenna(), columns, "/runs/x")
    chart = targets_chart(population, [_claim("usable", 2, "refuted"), _claim("usable", 5, "confirmed")])
    _accepted(chart)
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
    assert targets_chart(Population(antenna(), _columns(3, 5, failing=1.0), "/runs/x"), []).empty


def test_a_violated_constraint_keeps_a_candidate_from_a_target_that_does_not_name_it() -> None:
    problem = antenna().model_copy(update={"targets": (Target(name="high", rule="gain >= 9", unlock=True),)})
    columns = _columns(3, 5, failing=0.0)
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
    chart = targets_chart(Population(problem, _columns(20, 5), "/runs/x"), [])
    assert [trace["name"] for trace in chart.data] == ["record (unlocks)", "t0", "t1", "t2", "t3", "t4"]
    assert "5 targets are not drawn" in chart.note
    assert {row[0] for row in chart.table.rows} == {target.name for target in targets}


def test_tournament_names_are_wrapped_on_a_narrow_screen() -> None:
    estimate = Estimate(value=0.25, low=0.0, high=0.5, problems=3, runs=6)
    names = {"a": "vector-max-at-k-on-islands", "b": "grpo"}
    facts = {"difference": estimate, "verdict": Verdict.NOT_ENOUGH_EVIDENCE, "p_value": 0.5, "holm": 0.5}
    comparison = Comparison.model_construct(**names, **facts)
    standing = Standing.model_construct(
        entrant=names["a"], unlocked=1, pass_1=estimate, pass_k=estimate, best_1=estimate, ended=6
    )
    wide, narrow = (differences_chart([comparison], "pass_1", narrow=narrow) for narrow in (False, True))
    assert "ticktext" not in wide.layout["yaxis"]
    lines = narrow.layout["yaxis"]["ticktext"][0].split("<br>")
    assert lines == ["vector-max-at-k-on-is…", "− grpo", "not enough evidence"]
    assert narrow.layout["yaxis"]["tickvals"] == narrow.data[0]["y"] == wide.data[0]["y"]
    short = differences_chart([comparison.model_copy(update={"a": "vpo"})], "pass_1", narrow=True)
    assert short.layout["yaxis"]["ticktext"] == ["vpo − grpo<br>not enough evidence"]
    for chart in (wide, narrow, standings_chart([standing], narrow=True), differences_chart([], "pass_1", narrow=True)):
        _accepted(chart)


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
    columns = _columns(20_000, 5)
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
    columns = _columns(3, 1, failing=0.0)
    columns.at[0] += 5.0
    rows = throughput_chart(Population(single(), columns, "/runs/x")).table.rows
    assert sum(int(scored) for _, scored, _ in rows) == 3


def test_a_long_front_is_thinned_but_keeps_the_best_of_every_objective() -> None:
    columns = _columns(1000, 5, failing=0.0)
    columns.rewards[:, 0] = columns.rewards[:, 1]  # more gain has larger sidelobes: no candidate dominates another
    columns.rewards[:, 4] = 0.0
    population = Population(antenna(), columns, "/runs/x")
    assert len(population.front) > MAX_LINES
    chart = parallel_chart(population)
    assert MAX_LINES <= len(set(chart.data[0]["customdata"])) <= MAX_LINES + 5
    assert "are not drawn" in chart.note
    _accepted(chart)
    for name, row in (("bandwidth", np.argmax(columns.rewards[:, 2])), ("cost", np.argmin(columns.rewards[:, 3]))):
        best = next(trace for trace in chart.data[1:] if name in trace["name"])
        assert best["customdata"][0] == columns.number[row]


def test_an_entrant_without_an_ended_run_has_not_failed_the_problem() -> None:
    rows = [MatrixRow(problem=name, successes=(1, 0), runs=(1, ended)) for name, ended in (("a", 1), ("b", 0))]
    found = pair_rows(tuple(rows), 0, 1)
    assert found["only-a"] == [("a", "1/1", "0/1")]
    assert found["not-tried"] == [("b", "1/1", "0/0")]


def test_no_candidate_of_the_front_is_dominated() -> None:
    population = Population(antenna(), _columns(200, 5), "/runs/x")
    points = population.problem.space.normalise(population.columns.rewards)
    for row in population.front:
        better = np.all(points >= points[row], axis=1) & np.any(points > points[row], axis=1)
        assert not better[population.columns.scored].any()


def test_ancestry_ends_at_the_root() -> None:
    population = Population(antenna(), _columns(40, 5), "/runs/x")
    assert [int(population.columns.number[row]) for row in ancestry(population, 37)] == [37, 18, 9, 4, 2, 1]
    assert generations(population)[36] == 5


def test_columns_are_read_incrementally() -> None:
    whole = _columns(30, 5)
    asked = []

    class Store:
        def arrays(self, run_id: object, dimensions: int, *, after: int = 0) -> CandidateArrays:
            asked.append(after)
            end = min(30, after + 10)
            return CandidateArrays(**{name: values[after:end] for name, values in vars(whole).items()})

        def refuted(self, run_id: object) -> tuple[tuple[int, str], ...]:
            return ()

    cache, problem = PopulationCache(Store()), antenna()  # type: ignore[arg-type]
    run_id = uuid4()
    sizes = [len(cache.of(run_id, problem).columns) for _ in range(4)]
    assert (sizes, asked) == ([10, 20, 30, 30], [0, 10, 20, 30])
    assert cache.of(run_id, problem) is cache.of(run_id, problem)
    assert cache.of(run_id, problem).columns.failure == whole.failure


def test_the_first_part_of_a_page_is_sent_before_the_rest_is_rendered() -> None:
    def pieces() -> Iterator[str]:
        yield "<p>" + "first " * 400
        yield _FLUSH
        made.append("rest")
        yield "last"

    made: list[str] = []
    sections = _sections(pieces())
    first = next(sections)
    assert made == []
    packed = _compressed(first, sections)
    reader = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    assert reader.decompress(next(packed)) == first
    assert made == []
    assert reader.decompress(b"".join(packed)) == b"last"


def test_non_finite_numbers_become_null() -> None:
    assert to_json({"a": np.array([1.0, np.nan, np.inf]), "b": (1, "x", None)}) == {
        "a": [1.0, None, None],
        "b": [1, "x", None],
    }
    assert thinned(10, 4) == [0, 3, 6, 9]


def test_csv_cells_that_a_spreadsheet_would_evaluate_are_quoted() -> None:
    text = Table(("name",), [("=cmd()",), ("+1",), ("@x",), (-1.5,), ("plain, quoted",)]).csv()
    assert text.splitlines() == ["name", "'=cmd()", "'+1", "'@x", "-1.5", '"plain, quoted"']


def test_a_figure_is_drawn_once_and_answered_with_304() -> None:
    made = []

    def make() -> Chart:
        made.append(1)
        return Chart("x", "x", "x", [], {}, Table(("a", "b"), []))

    cache = ChartCache()
    request = _request("GET", {"accept-encoding": "gzip"})
    first = cache.respond(request, "key", make)
    again = cache.respond(_request("GET", {"if-none-match": first.headers["etag"]}), "key", make)
    assert (first.status_code, again.status_code, len(made)) == (200, 304, 1)
    assert json.loads(cache.respond(_request("GET", {}), "key", make).body)["data"] == []


def test_fields_of_a_config_model_round_trip() -> None:
    for kind in STRATEGIES.values():
        fields = build_fields(kind.Config, "o.", {})
        assert [field.name.removeprefix("o.") for field in fields] == list(kind.Config.model_fields)
        # Browsers omit unticked boxes and send every other field as text.
        sent = {field.name: field.value for field in fields if field.kind != "check" or field.value}
        assert read_values(kind.Config, "o.", sent) == {}
    islands = STRATEGIES["islands_map_elites"].Config
    given = {"o.islands": "7", "o.features": "novelty", "o.crossover": "much"}
    assert read_values(islands, "o.", given) == {"islands": 7, "features": ["novelty"], "crossover": "much"}


def test_options_shown_for_another_strategy_are_dropped() -> None:
    """Both strategies have an ``exploration`` with different defaults."""
    sent = {"strategy": "vector_evolution", "option.exploration": "0.2", "option.min_elites": "5"}
    own = {"exploration": 0.2, "min_elites": 5}
    assert read_strategy(sent) == {"strategy": "vector_evolution", "strategy_options": own}
    assert read_strategy(sent | {"options_of": "vector_evolution"})["strategy_options"] == own
    assert read_strategy(sent | {"options_of": "islands_map_elites"})["strategy_options"] == {}
    fields = {
        field.name: field.value for field in strategy_context(sent | {"options_of": "islands_map_elites"})["options"]
    }
    assert fields["option.exploration"] == "0.1"
    assert {field.name: field.value for field in strategy_context(sent)["options"]}["option.exploration"] == "0.2"
    assert read_strategy({"strategy": "nonsense", "option.a": "1"}) == {"strategy": "nonsense", "strategy_options": {}}
    assert strategy_context({"strategy": "nonsense"})["strategy"] == read_strategy({})["strategy"] == "vector_evolution"


POLICY = {
    "slug": "qwen",
    "kind": "openai_compatible",
    "base_url": " http://127.0.0.1:8000/v1 ",
    "model": "m",
    "codec": "",
    "answers_per_rollout": "2",
    "sampling.temperature": "0.5",
    "sampling.logprobs": "on",
    "options": 'max_retries = 2\n\nextra_body={"top_k": 20}\nbase_model=big\n',
}


def test_a_policy_form_becomes_a_submission_of_the_rest_api() -> None:
    found = read_submission(POLICY | {"api_key": " sk-1 "})
    assert found.api_key is not None
    assert (found.api_key.get_secret_value(), found.check) == ("sk-1", True)
    assert not read_submission(POLICY | {"unchecked": "on"}).check
    assert found.definition == Policy(
        slug="qwen",
        kind="openai_compatible",
        base_url="http://127.0.0.1:8000/v1",
        model="m",
        answers_per_rollout=2,
        sampling=Sampling(temperature=0.5, logprobs=True),
        options={"max_retries": 2, "extra_body": {"top_k": 20}, "base_model": "big"},
    )


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"slug": "No Slug"}, "slug", "lower-case words"),
        ({"slug": ""}, "slug", "is missing"),
        ({"timeout_s": "soon"}, "timeout_s", "number"),
        ({"sampling.temperature": "11"}, "sampling.temperature", "less than or equal to 10"),
        ({"codec": "maze"}, "", "needs prompt_format 'completion'"),
        ({"api_key": "two words"}, "api_key", "without spaces"),
        ({"api_key": "k", "api_key_env": "POLICY_KEY_X"}, "api_key", "without api_key_env"),
        ({"api_key_env": "HOME"}, "api_key_env", "begins with POLICY_KEY"),
        ({"options": "max_retries"}, "options", "'max_retries': expected name=value"),
        ({"options": "max_retries=1e999"}, "options", "max_retries: "),
        ({"options": "max_tries=1"}, "options", "max_tries: no such option"),
        ({"base_url": ""}, "base_url", "such as http://127.0.0.1:8000/v1"),
        ({"model": ""}, "model", "GET /models"),
    ],
)
def test_errors_of_a_policy_appear_at_their_field(changes: dict[str, str], place: str, words: str) -> None:
    with pytest.raises((InvalidInputError, ValidationError)) as refused:
        build_client(read_submission(POLICY | changes).definition)
    assert words in policy_form_errors(refused.value).for_field(place)


def _request(method: str, headers: dict[str, str], body: bytes = b"") -> Request:
    raw = [(name.encode(), value.encode()) for name, value in {"host": "localhost", **headers}.items()]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": method, "path": "/", "query_string": b"", "headers": raw}, receive)


def test_forms_are_parsed_in_both_encodings() -> None:
    own = {"origin": "http://localhost"}
    kind = {"content-type": "application/x-www-form-urlencoded"}
    form = asyncio.run(read_form(_request("POST", own | kind, b"a=1%0D%0A2&b=&a=3")))
    assert form.fields == {"a": "3", "b": ""}
    parts = (
        '--x\r\nContent-Disposition: form-data; name="toml"\r\n\r\none\r\ntwo\r\n--x\r\nContent-Disposition: form-data;'
        ' name="files"; filename="../etc/é.py"\r\nContent-Type: text/x-python\r\n\r\nprint("ü")\n\r\n--x\r\n'
        'Content-Disposition: form-data; name="files"; filename=""\r\n\r\n\r\n--x--\r\n'
    )
    kind = {"content-type": "multipart/form-data; boundary=x"}
    form = asyncio.run(read_form(_request("POST", own | kind, parts.encode())))
    assert form.fields == {"toml": "one\ntwo"}
    assert form.files == {"é.py": 'print("ü")\n'}
    with pytest.raises(InvalidInputError, match="UTF-8"):
        asyncio.run(read_form(_request("POST", own | kind, parts.encode("latin-1"))))


def test_seeds_are_parsed_from_ranges_and_lists() -> None:
    assert parse_seeds("0-3, 7 9") == [0, 1, 2, 3, 7, 9]
    assert (
        len(parse_seeds("0-999999999")) == len(parse_seeds("0-999," * 30_000)) == len(parse_seeds("7 " * 5000)) == 1001
    )
    assert len(parse_seeds("5-1004")) == 1000
    assert parse_seeds("x") == ["x"]


def test_too_many_seeds_are_an_error() -> None:
    with pytest.raises(ValidationError) as refused:
        Tournament.model_validate({"seeds": parse_seeds("0-999 " * 30_000)})
    assert (
        form_errors(refused.value).for_field("seeds")
        == "Tuple should have at most 1000 items after validation, not 1001"
    )


def test_a_view_is_rendered_once_for_all_viewers() -> None:
    asyncio.run(_watched())


async def _watched() -> None:
    live = LiveViews(poll_s=10.0, pause_s=0.0)
    shown = ["one"]
    rendered = []

    def render() -> LivePart:
        rendered.append(shown[0])
        return LivePart(shown[0], final=shown[0] == "last")

    run_id = uuid4()
    streams = [live.watch("key", render, run_id=run_id, seen="") for _ in range(20)]
    readers = [aiter(stream.body_iterator) for stream in streams]
    first = [await _next_part(reader) for reader in readers]
    assert {part["html"] for _, part in first} == {"one"}
    assert len(rendered) == 1
    live.wake(uuid4())  # another run
    shown[0] = "two"
    live.wake(run_id)
    assert {(await _next_part(reader))[1]["html"] for reader in readers} == {"two"}
    assert rendered == ["one", "two"]
    # A viewer that reconnects with the current frame gets the next one only.
    late = aiter(live.watch("key", render, run_id=run_id, seen=first[0][0]).body_iterator)
    assert (await _next_part(late))[1]["html"] == "two"
    shown[0] = "last"
    live.wake(run_id)
    for reader in readers:
        assert (await _next_part(reader))[1]["html"] == "last"
        assert b"event: end" in await anext(reader)
    live.close_streams()


async def _next_part(reader: AsyncIterator[Any]) -> tuple[str, dict[str, Any]]:
    while True:
        frame = (await anext(reader)).decode()
        if "event: part" in frame:
            lines = dict(line.split(": ", 1) for line in frame.strip().split("\n"))
            return lines["id"], json.loads(lines["data"])


@pytest.mark.parametrize(
    ("kind", "data", "words", "candidates"),
    [
        ("target.claimed", {}, "sorts claimed, to be confirmed by a second evaluation: candidate", (2,)),
        (
            "target.confirmed",
            {"evaluations": 1},
            "sorts confirmed after 1 evaluation: candidate",
            (2,),
        ),
        ("target.refuted", {"detail": "n was 3"}, "sorts refuted (n was 3): candidate", (2,)),
        (
            "batch.evaluated",
            {"candidates": [{"failure": None, "duplicate_of": None}], "evaluations": 1, "archive": [[0, "w0", 2]]},
            "1 candidate, 1 evaluation in total, 1 cell of the archive won by",
            (2,),
        ),
        ("batch.proposed", {"proposals": 1200, "rollouts": 1}, "1 200 candidates from 1 completion", ()),
    ],
)
def test_events_are_described(kind: str, data: dict[str, Any], words: str, candidates: tuple[int, ...]) -> None:
    given = {"target": "sorts", "candidate": 2, **data}
    event = EventRecord(run_id=uuid4(), seq=1, kind=kind, data=given, at=datetime(2026, 1, 2, tzinfo=UTC))
    assert describe_event(event) == (words, candidates)


def test_form_errors_are_sentences() -> None:
    shown = macro("form_errors", form_errors(NotFoundError("there is no policy 'nope'.")))
    assert "<strong>Not found.</strong> There is no policy &#39;nope&#39;." in shown
    with pytest.raises(ValidationError) as caught:
        Tournament.model_validate({})
    assert "is missing: expected a value" in form_errors(caught.value).for_field("entrants")


def test_reached_targets_are_counted() -> None:
    shown = [macro("reached", {"unlocked": None, "reached": names}) for names in ([], ["low"], ["low", "high"])]
    assert shown == ["–", "1 target", "2 targets"]


def test_numbers_and_durations_are_formatted() -> None:
    assert [number(v) for v in (None, 3.0, 9999.7, 12345, -0.25, 1e-9, float("nan"))] == [
        "–",
        "3",
        "9\u202f999.7",
        "12\u202f345",
        "−0.25",
        "1e−09",
        "–",
    ]
    assert [duration(s) for s in (0.004, 2.0, 75, 3600 * 5)] == [
        "4\u202fms",
        "2.0\u202fs",
        "1\u202fmin 15\u202fs",
        "5\u202fh",
    ]


def test_empty_lists_say_how_to_start() -> None:
    nothing: dict[str, Any] = {
        "counts": {},
        "running": (),
        "latest": (),
        "unlocks": (),
        "tournaments": (),
        "workers": (),
    }
    begin = "speciate run PROBLEM --policy POLICY --budget"  # a run without a budget is refused
    assert begin in fragment("activity_live.html", **nothing)
    fresh, sought = (fragment("runs_live.html", runs=(), older=None, filtered=given) for given in (False, True))
    assert begin in fresh
    assert ("No runs match the filter" in fresh, "No runs match the filter" in sought) == (False, True)
