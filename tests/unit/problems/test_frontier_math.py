"""The evaluators of the set ``frontier-math``, fed with constructions whose values are known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.problem import Problem
from speciate.problems.loader import bundled_sets, known_problems, load_problem
from tests.support.script_evaluators import InvalidAnswerError, evaluator_in

SET = bundled_sets()["frontier-math"]

PUBLISHED: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
"""Constructions that AlphaEvolve published (https://github.com/google-deepmind/alphaevolve_results, CC BY 4.0), moved
into each problem's frame: the hexagons around the origin, the rectangle at it, the triangle with a right angle."""

RECORD_CIRCLES: list[list[float]] = json.loads(Path(__file__).with_name("circles_26.json").read_text(encoding="utf-8"))
"""The level of later papers: AlphaEvolve's circles, perturbed and moved by sequential linear programming."""


def evaluator(slug: str, **constants: int) -> Callable[[Any], dict[str, float]]:
    """Return a problem's evaluator as a function of the answer, for other sizes if constants are given."""
    evaluate = evaluator_in(SET.problems[slug], **constants)
    return lambda answer: evaluate(lambda _: answer)


@pytest.fixture(scope="module")
def problems() -> dict[str, Problem]:
    return {slug: load_problem(path) for slug, path in SET.problems.items()}


def test_the_set_is_whole(problems: dict[str, Problem]) -> None:
    assert len(problems) >= 14
    assert {slug: problem.slug for slug, problem in problems.items()} == {slug: slug for slug in problems}
    assert set(problems) <= set(known_problems())
    folder = next(iter(SET.problems.values())).parent
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(problems)
    for problem in problems.values():
        names = [target.name for target in problem.targets]
        assert names[-1] == "record_level", problem.slug
        assert problem.source.strip(), problem.slug
        assert (problem.limits.wall_s, "scipy.optimize" in problem.preload) == (60.0, True)


def test_no_seed_program_unlocks_its_problem(problems: dict[str, Problem], strongest: SandboxEvaluator) -> None:
    for slug, problem in problems.items():
        (found,) = strongest.evaluate(problem, [problem.seed_program], seeds=[0])
        assert found.rewards is not None, (slug, found.failure)
        met = problem.targets_met(found.rewards)
        assert not any(met >> i & 1 for i, target in enumerate(problem.targets) if target.unlock), slug


@pytest.mark.parametrize(
    ("slug", "answer", "level"),
    [
        *((slug, PUBLISHED[slug], "record_level") for slug in SET.problems if slug != "circles-in-square-26"),
        ("circles-in-square-26", PUBLISHED["circles-in-square-26"], "alphaevolve_level"),
        ("circles-in-square-26", RECORD_CIRCLES, "record_level"),
    ],
    ids=[*(slug for slug in SET.problems if slug != "circles-in-square-26"), "circles-26", "circles-26-later"],
)
def test_a_published_construction_meets_the_published_level(slug: str, answer: Any, level: str) -> None:
    problem = load_problem(SET.problems[slug])
    rewards = evaluator(slug)(answer)
    met = problem.targets_met(problem.space.vector(rewards))
    names = {target.name for i, target in enumerate(problem.targets) if met >> i & 1}
    assert {"best_before", level} <= names, (rewards, names)


def test_circles() -> None:
    five = evaluator("circle-packing-32", N=5)
    side = math.sqrt(2) - 1  # four quarter circles and the one between them
    corners = [[x, y, 0.25] for x in (0.25, 0.75) for y in (0.25, 0.75)]
    found = five([*corners, [0.5, 0.5, side / 4]])
    assert found["sum_of_radii"] == pytest.approx(1 + side / 4)
    assert found["overlap"] == 0
    assert five([*corners, [0.5, 0.5, 0.2]])["overlap"] > 0.09
    three = evaluator("circles-in-rectangle-21", N=3)
    assert three([1.5, [[0.25 + 0.5 * i, 0.25, 0.25] for i in range(3)]]) == {
        "sum_of_radii": 0.75, "smallest_radius": 0.25, "overlap": 0.0,
    }  # fmt: skip


def test_hexagons() -> None:
    assert evaluator("hexagons-11", N=2)([[0, 0, 10], [math.sqrt(3), 0.0, 10]])["overlap"] > 0
    apart = evaluator("hexagons-11", N=2)([[-math.sqrt(3) / 2, 0, 30], [math.sqrt(3) / 2, 0.0, 30]])
    assert apart["overlap"] == 0
    seven = evaluator("hexagons-12", N=7)
    ring = [[math.sqrt(3) * math.cos(a), math.sqrt(3) * math.sin(a), 0] for a in map(math.radians, range(30, 390, 60))]
    flower = seven([[0, 0, 0], *ring])
    assert flower["overlap"] == pytest.approx(0, abs=1e-9)
    one = evaluator("hexagons-11", N=1)
    with pytest.raises(InvalidAnswerError):
        one([[0, 0]])


def test_points() -> None:
    six = evaluator("heilbronn-convex-13", N=6)
    hexagon = [[math.cos(k * math.pi / 3), math.sin(k * math.pi / 3)] for k in range(6)]
    assert six(hexagon)["smallest_area"] == pytest.approx(1 / 6)
    corners = evaluator("heilbronn-triangle-11", N=5)
    assert corners([[0, 0], [1, 0], [0, 1], [0.5, 0.5], [0.25, 0.25]])["smallest_area"] == pytest.approx(0)
    seven = evaluator("distance-ratio-2d-16", N=7)
    assert seven([*hexagon, [0.0, 0.0]])["squared_ratio"] == pytest.approx(4)
    cube = [[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)]
    assert evaluator("distance-ratio-3d-14", N=8)(cube)["squared_ratio"] == pytest.approx(3)
    with pytest.raises(InvalidAnswerError, match="coincide"):
        seven([[0.0, 0.0]] * 7)


def test_kissing_numbers_of_lattices_are_exact() -> None:
    score = evaluator("kissing-number-11")
    simplex = [[1 if i == j else 0 for i in range(11)] for j in range(11)]
    assert score([*simplex, *([-x for x in v] for v in simplex)]) == {"spheres": 22, "kept": 22, "conflicts": 0}
    roots = [[0] * i + [a] + [0] * (j - i - 1) + [b] + [0] * (10 - j)
             for i in range(11) for j in range(i + 1, 11) for a in (1, -1) for b in (1, -1)]  # fmt: skip
    assert score(roots) == {"spheres": 220, "kept": 220, "conflicts": 0}
    near = [*roots[:2], [10**14, 10**14 - 1, *[0] * 9]]
    assert score([[x * 10**14 for x in v] for v in roots[:2]] + [near[2]])["conflicts"] == 1
    with pytest.raises(InvalidAnswerError, match="15 digits"):
        score([[0.5, *[0] * 10]])


def test_functions() -> None:
    assert evaluator("autocorrelation-1")([1.0] * 40)["c1"] == pytest.approx(2)
    assert evaluator("autocorrelation-2")([3.0] * 40)["c2"] == pytest.approx(2 / 3)
    assert evaluator("autocorrelation-3")([1.0] * 40)["c3"] == pytest.approx(2)
    assert evaluator("erdos-minimum-overlap")([0.5] * 40) == {"overlap": pytest.approx(0.5), "steps": 40, "excess": 0.0}
    # Swinnerton-Dyer's first step: h = 1 on the middle half gives the overlap 1/2 as well.
    assert evaluator("erdos-minimum-overlap")([0, 1, 1, 0])["overlap"] == pytest.approx(0.5)
    with pytest.raises(InvalidAnswerError, match="negative"):
        evaluator("autocorrelation-1")([1.0, -1.0])
    with pytest.raises(InvalidAnswerError, match="integral"):
        evaluator("autocorrelation-3")([1.0, -1.0])


def test_the_absolute_value_is_another_inequality() -> None:
    found = evaluator("autocorrelation-3")([1.0, -1.0, 2.0])
    # f*f at the corners: 1, -2, 5, -4, 4, times 2 n / (integral)^2 = 6 / 4.
    assert (found["c3"], found["c3_absolute"]) == (pytest.approx(7.5), pytest.approx(7.5))
    assert evaluator("autocorrelation-3")([2.0, -3.0, 2.0])["c3_absolute"] > 100


def test_uncertainty() -> None:
    score = evaluator("uncertainty-inequality")
    # Without double roots: L_2 - L_0 with parameter -1/2 is a multiple of z (z - 3).
    assert score([]) == {"bound": pytest.approx(3 / (2 * math.pi)), "double_roots": 0}
    assert score([5.0])["bound"] == pytest.approx(0.3521, abs=1e-4)
    # A double root that is moved too far comes with a last sign change beyond it, which counts.
    assert score([6.0])["bound"] > 4
    for wrong in ([5.0, 5.0], [0.0], [-1.0], [5000.0], [1.0] * 13, "5"):
        with pytest.raises(InvalidAnswerError):
            score(wrong)


def test_sets_of_numbers() -> None:
    score = evaluator("sums-and-differences")
    assert score([0, 1])["exponent"] == pytest.approx(1)
    assert score([0, 1, 3])["exponent"] == pytest.approx(1 + math.log(7 / 6) / math.log(7))
    conway = [0, 2, 3, 4, 7, 11, 12, 14]  # more sums than differences
    assert score(conway)["exponent"] < 1


STRASSEN = [
    ([1, 0, 0, 1], [1, 0, 0, 1], [1, 0, 0, 1]),
    ([0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 1, -1]),
    ([1, 0, 0, 0], [0, 1, 0, -1], [0, 1, 0, 1]),
    ([0, 0, 0, 1], [-1, 0, 1, 0], [1, 0, 1, 0]),
    ([1, 1, 0, 0], [0, 0, 0, 1], [-1, 1, 0, 0]),
    ([-1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]),
    ([0, 1, 0, -1], [0, 0, 1, 1], [1, 0, 0, 0]),
]
"""Strassen (1969): 2 x 2 matrices with seven products."""


def test_strassens_algorithm_is_exact() -> None:
    score = evaluator("matrix-multiplication-2x4x5", N=2, M=2, P=2)
    assert score([list(map(list, product)) for product in STRASSEN]) == {"rank": 7, "nonzeros": 36, "wrong": 0}
    halved = [[u, [x / 2 for x in v], [2 * x for x in w]] for u, v, w in STRASSEN]
    assert score(halved)["wrong"] == 0
    assert score([list(map(list, product)) for product in STRASSEN[1:]])["wrong"] > 0
    with pytest.raises(InvalidAnswerError, match="multiples of 1/2"):
        score([[[0.3] * 4, [0] * 4, [0] * 4]])
