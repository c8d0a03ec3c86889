"""Cells, features, parent pools and the draw of inspirations."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.search.archive import ParentPool, draw_diverse, improvements, pool_of, trade_off_bids
from speciate.search.cells import DECLARED, MAX_TRADE_OFFS, trade_offs, weigh, weightings
from speciate.search.features import Feature, feature_cell, syntax_depth
from speciate.search.strategy import EliteTable, Placement
from tests.support.population import evaluated, vector_problem


@pytest.mark.parametrize("k", [1, 2, 3, 4, 6, 7, 22, 23, 24, 300, 512])
def test_the_lattice_is_bounded_distinct_and_on_the_simplex(k: int) -> None:
    lattice = trade_offs(k)
    assert lattice.shape[0] <= MAX_TRADE_OFFS
    assert np.allclose(lattice.sum(axis=1), 1.0)
    assert lattice.min() >= 0.0
    assert len({tuple(row) for row in lattice.tolist()}) == len(lattice)
    assert np.all(lattice.max(axis=0) > 0.5 / k)  # no objective is forgotten
    with pytest.raises(ValueError, match="read-only"):
        lattice[0, 0] = 2.0


def test_few_objectives_get_corners_uniform_and_every_pair() -> None:
    lattice = trade_offs(4)
    assert len(lattice) == 4 + 1 + 6
    assert lattice[:4].argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert {tuple(np.flatnonzero(row > 0.1).tolist()) for row in lattice[5:]} == {
        (i, j) for i in range(4) for j in range(i + 1, 4)
    }


def test_pairs_meet_every_objective_before_one_twice_as_often() -> None:
    pairs = trade_offs(9)[10:]
    met = (pairs > 0.1).sum(axis=0)
    assert met.min() >= 2
    assert met.max() - met.min() <= 2


def test_declared_weights_have_their_own_cell() -> None:
    names, weights = weightings(2, (0.25, 0.75))
    assert names == ("w0", "w1", "w2", DECLARED)
    assert weights[3].tolist() == [0.25, 0.75]


def test_a_value_does_not_depend_on_its_neighbours() -> None:
    points = np.random.default_rng(0).random((64, 7))
    together = weigh(points, trade_offs(7))
    for i in range(64):
        assert np.array_equal(weigh(points[i : i + 1], trade_offs(7))[0], together[i])
    for size in (2, 3, 16, 33):
        assert np.array_equal(weigh(points[:size], trade_offs(7)), together[:size])


def test_among_equal_specialists_the_better_rounded_takes_the_corner() -> None:
    problem = vector_problem(3)
    bids = trade_off_bids(problem, np.array([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0]]))
    assert {cell: row for cell, row, _ in bids}["w0"] == 1


def test_among_equals_on_a_pair_the_better_rounded_takes_its_cell() -> None:
    bids = trade_off_bids(vector_problem(3), np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.5]]))
    (cell,) = (f"w{i}" for i, row in enumerate(trade_offs(3)) if row[0] == row[1] > row[2] > 0)
    assert {cell: row for cell, row, _ in bids}[cell] == 1


def test_improvements_keep_the_first_best_and_what_beats_the_held() -> None:
    table = EliteTable.of([Placement(1, 0, "a", 0.5, (0.5,)), Placement(2, 0, "b", 0.9, (0.9,))], 1)
    candidates = [evaluated(10 + i, 0, "", (float(i),)) for i in range(4)]
    bids = [("a", 0, 0.5), ("a", 1, 0.7), ("a", 2, 0.7), ("b", 1, 0.8), ("c", 3, -5.0), ("d", 3, float("inf"))]
    granted = {(p.cell, p.number, p.fitness) for p in improvements(table, 2, bids, candidates)}
    assert granted == {("a", 11, 0.7), ("c", 13, -5.0)}


def test_a_pool_holds_distinct_feasible_elites() -> None:
    problem = vector_problem(2, constrained=True)
    obeying = [
        Placement(7, 0, "w0", 0.0, (0.9, 0.1, 0.0)),
        Placement(7, 0, "w1", 0.0, (0.9, 0.1, 0.0)),
        Placement(3, 0, "w2", 0.0, (0.2, 0.3, 0.0)),
    ]
    violating = [Placement(5, 0, "w3", 0.0, (1.0, 1.0, 0.2))]
    pool = pool_of(problem.space, EliteTable.of([*obeying, *violating], 3))
    assert pool.numbers.tolist() == [3, 7]
    assert np.allclose(pool.points, [[0.2, 0.3], [0.9, 0.1]])
    assert pool_of(problem.space, EliteTable.of(violating, 3)).numbers.tolist() == [5]


def test_an_estimated_range_reaches_the_best_of_the_archive() -> None:
    declared = vector_problem(2)
    estimated = [o.model_copy(update={"estimated": True}) for o in declared.objectives]
    estimated[1] = estimated[1].model_copy(update={"direction": Direction.MINIMIZE})
    problem = declared.model_copy(update={"objectives": tuple(estimated)})
    table = EliteTable.of(
        [
            Placement(1, 0, "s0", 0.0, (500.0, 0.5)),
            Placement(2, 0, "s1", 0.0, (0.5, -3.0)),
            Placement(3, 0, "s2", 0.0, (-9.0, 4.0)),
        ],
        2,
    )
    assert pool_of(problem.space, table).points.tolist() == [[1.0, 0.125], [0.001, 1.0], [-0.018, -0.75]]
    assert pool_of(declared.space, table).points.max() == 500.0


def test_inspirations_are_drawn_by_their_distance_front_by_front() -> None:
    points = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [-1.0, 2.0], [-9.0, 0.0]])
    pool = ParentPool(np.arange(5), points, vector_problem(2).space)
    rng = np.random.default_rng(1)
    first = [draw_diverse(pool, [0], 1, rng)[0] for _ in range(4000)]
    assert set(first) == {2, 3}
    assert abs(first.count(3) / 4000 - 0.75) < 0.04
    assert sorted(draw_diverse(pool, [0], 2, rng)) == [2, 3]
    assert draw_diverse(pool, [0], 9, rng)[2:] == [4]
    assert draw_diverse(pool, [0, 2, 3, 4], 9, rng) == []
    single = ParentPool(
        np.arange(7), np.array([[0.9], [0.0], [0.7], [0.9], [0.8], [0.1], [0.2]]), vector_problem(1).space
    )
    assert draw_diverse(single, [0], 3, rng) == [4, 2]


@pytest.mark.parametrize(
    ("program", "cell"),
    [
        ("x" * 100, "length:2,nesting:0"),
        ("x" * 142, "length:3,nesting:0"),
        ("x" * 50, "length:0,nesting:0"),
        ("x" * 100_000, "length:7,nesting:0"),
        ("", "length:0,nesting:0"),
        ("if x:\n    y\n" + "#" * 88, "length:2,nesting:1"),
        ("a:\n\t\tb\n   \n" + "#" * 89, "length:2,nesting:2"),
        (" " * 99 + "x", "length:2,nesting:7"),
    ],
)
def test_programs_fall_into_cells_by_shape(program: str, cell: str) -> None:
    problem = vector_problem(1, seed_program="s" * 100)
    candidate = evaluated(1, 0, program, (0.0,))
    assert feature_cell(candidate, problem, (Feature.LENGTH, Feature.NESTING), 8) == cell


def test_a_record_objective_is_a_feature() -> None:
    recorded = Objective(name="calls", role=ObjectiveRole.RECORD, range=(0.0, 100.0))
    held_out = recorded.model_copy(update={"name": "held_out_calls"})
    plain = vector_problem(1)
    problem = plain.model_copy(update={"objectives": (*plain.objectives, held_out, recorded)})
    cells = [
        feature_cell(evaluated(1, 0, "", (0.5, 50.0, calls)), problem, (Feature.RECORD,), 4)
        for calls in (-1e300, 0.0, 26.0, 100.0, 1e300)
    ]
    assert cells == ["record:0", "record:0", "record:1", "record:3", "record:3"]
    assert feature_cell(evaluated(1, 0, "", (0.5,)), plain, (Feature.RECORD,), 4) is None


def test_equal_behaviour_has_one_signature() -> None:
    problem = vector_problem(4)

    def cell(*rewards: float) -> str | None:
        return feature_cell(evaluated(1, 0, "", rewards), problem, (Feature.SIGNATURE,), 16)

    assert cell(0.0, 1.0, 0.5, 0.25) == cell(-0.0, 1.0, 0.5, 0.2500001)
    patterns = [[float(bit) for bit in f"{number:04b}"] for number in range(16)]
    assert len({cell(*pattern) for pattern in patterns}) > 8
    assert cell(1.0, 0.0, 0.0, 0.0) != cell(0.0, 1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("program", "cell"),
    [
        ("a = b + 1\n", "novelty:0"),
        ("  a=b  + 1", "novelty:0"),
        ("a = b + 2\n", "novelty:1"),
        ("while c(d) > e:\n    pass", "novelty:3"),
        ("", "novelty:0"),
    ],
)
def test_novelty_is_the_share_of_words_that_the_seed_program_does_not_have(program: str, cell: str) -> None:
    problem = vector_problem(1, seed_program="a = b + 1\n")
    assert feature_cell(evaluated(1, 0, program, (0.0,)), problem, (Feature.NOVELTY,), 4) == cell


def test_syntax_depth_needs_python() -> None:
    assert syntax_depth("x = 1") == 4
    assert syntax_depth("x = f(g(1))  # é") == 6
    assert syntax_depth("x = '\\d'") == 4  # an odd escape is no warning here


@pytest.mark.parametrize(
    "program", ["def", "\x00", "(" * 5000, "-" * 50_000 + "1", "\ud800", "x" + "+x" * 30_000, "a." * 20_000 + "b"]
)
def test_hostile_text_has_a_cell_like_any_other(program: str) -> None:
    candidate = evaluated(1, 0, program, (0.0,))
    cell = feature_cell(candidate, vector_problem(1), (Feature.DEPTH, Feature.NOVELTY), 8)
    assert cell is not None
    assert cell.startswith("depth:")
