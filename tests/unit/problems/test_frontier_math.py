"""The evaluators of the set ``frontier-math``, fed with constructions whose values are known."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.problem import OUTPUT, Carry, Problem
from speciate.ports.work import CarriedOutput
from speciate.problems.loader import bundled_sets, known_problems, load_problem
from speciate.runs.evaluation import with_output
from tests.support.script_evaluators import InvalidAnswerError, evaluator_in

SET = bundled_sets()["frontier-math"]

PUBLISHED: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
"""Constructions that AlphaEvolve published (https://github.com/google-deepmind/alphaevolve_results, CC BY 4.0), moved
into each problem's frame: the hexagons around the origin, the rectangle at it, the triangle with a right angle."""

BEST: dict[str, Any] = json.loads(Path(__file__).with_name("best_2026.json").read_text(encoding="utf-8"))
"""Constructions at the level of the best values of 2026, found by our own local search from those above.

Not at hand are those of ``hexagons-11``, ``hexagons-12``, ``kissing-number-11``, the autocorrelations,
``uncertainty-inequality`` and ``erdos-minimum-overlap``.
"""

STILL_BEST = ("heilbronn-triangle-11", "heilbronn-convex-13", "distance-ratio-3d-14")
"""Problems of which no better construction than AlphaEvolve's was published."""

RECORD_STANDS = {"matrix-multiplication-2x4x5", "sums-and-differences"}
"""Nothing better has been published within the limits."""

PI = 4 * np.arctan(np.longdouble(1))

RECORD_CIRCLES: list[list[float]] = json.loads(Path(__file__).with_name("circles_26.json").read_text(encoding="utf-8"))
"""The level of later papers: AlphaEvolve's circles, perturbed and moved by sequential linear programming."""


def evaluator(slug: str, **constants: int) -> Callable[[Any], dict[str, float]]:
    """Return a problem's evaluator as a function of the answer, for other sizes if constants are given."""
    evaluate = evaluator_in(SET.problems[slug], **constants)
    return lambda answer: evaluate(lambda _: answer)


def output_of(slug: str, answer: Any) -> Any:
    """Return the output that an evaluation stores."""
    notes: dict[str, str] = {}
    evaluator_in(SET.problems[slug])(lambda _: answer, notes)
    return json.loads(notes[OUTPUT])


@pytest.fixture(scope="module")
def problems() -> dict[str, Problem]:
    return {slug: load_problem(path) for slug, path in SET.problems.items()}


def test_the_set_is_whole(problems: dict[str, Problem]) -> None:
    assert len(problems) >= 14
    assert {slug: problem.slug for slug, problem in problems.items()} == {slug: slug for slug in problems}
    assert set(problems) <= set(known_problems())
    folder = next(iter(SET.problems.values())).parent
    assert {path.parent.name for path in folder.glob("*/problem.toml")} == set(problems)
    for problem in problems.values():
        names = [target.name for target in problem.targets]
        assert names[-1] == ("record_level" if problem.slug in RECORD_STANDS else "best_2026"), problem.slug
        assert "record_level" in names
        assert problem.source.strip(), problem.slug
        assert problem.carry is Carry.BEST
        # The processor time binds: waits of its own, such as reads, do not end a program that counts it.
        assert problem.limits.cpu_s == 60 < problem.limits.wall_s
        assert "scipy.optimize" in problem.preload


def test_targets_are_declared_from_easy_to_hard(problems: dict[str, Problem]) -> None:
    for problem in problems.values():
        worst = [objective.worst for objective in problem.objectives]
        lacking = [problem.ranking.missing(i, worst)[0] for i in range(len(problem.targets))]
        sizes = [shortfall.size for shortfall in lacking if shortfall.name == problem.objectives[0].name]
        assert sizes == sorted(sizes), problem.slug


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
        ("circles-in-square-26", RECORD_CIRCLES, "best_2026"),
        *((slug, BEST[slug], "best_2026") for slug in BEST),
        *((slug, PUBLISHED[slug], "best_2026") for slug in STILL_BEST),
    ],
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
    found = three([1.5, [[0.25 + 0.5 * i, 0.25, 0.25] for i in range(3)]])
    assert found == pytest.approx({"sum_of_radii": 0.75, "smallest_radius": 0.25, "overlap": 0.0})
    assert found["sum_of_radii"] < 0.75


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


@pytest.mark.parametrize("slug", SET.problems)
def test_a_stored_output_scores_as_measured(slug: str) -> None:
    """Later programs start from it: scored again, it loses no more than rounding."""
    once = output_of(slug, PUBLISHED[slug])
    assert evaluator(slug)(once) == pytest.approx(evaluator(slug)(PUBLISHED[slug]), rel=1e-9, abs=1e-12)


def test_a_stored_output_reaches_the_next_program(problems: dict[str, Problem], strongest: SandboxEvaluator) -> None:
    """The longest outputs pass through the sandbox whole, and back into it as a file."""
    reads = "import json\ndef solve():\n    return json.load(open('data/best.json'))\n"
    for slug in ("kissing-number-11", "autocorrelation-1", "circles-in-square-26"):
        (first,) = strongest.evaluate(problems[slug], [f"def solve():\n    return {PUBLISHED[slug]}\n"], seeds=[0])
        carried = with_output(problems[slug], CarriedOutput(1, first.artifacts[OUTPUT]))
        (second,) = strongest.evaluate(carried, [reads], seeds=[0])
        assert second.rewards == pytest.approx(first.rewards, rel=1e-9), slug


def exact_overlap(circles: list[list[float]], width: Fraction, height: Fraction) -> bool:
    """Return whether two circles overlap, or one and the border, in exact arithmetic."""
    exact = [[Fraction(x) for x in circle] for circle in circles]
    return any(r > min(x, y, width - x, height - y) for x, y, r in exact) or any(
        (x - u) ** 2 + (y - v) ** 2 < (r + s) ** 2 for (x, y, r), (u, v, s) in combinations(exact, 2)
    )


@pytest.mark.parametrize("excess", [0.0, 1e-12, 4e-10, 4e-7])
def test_no_tolerance_is_left_in_a_packing_of_circles(excess: float) -> None:
    """Whatever overlap is accepted, the circles that are scored have none, in exact arithmetic."""
    for slug in ("circles-in-square-26", "circle-packing-32"):
        answer = [[x, y, radius + excess] for x, y, radius in PUBLISHED[slug]]
        rewards, scored = evaluator(slug)(answer), output_of(slug, answer)
        assert not exact_overlap(scored, Fraction(1), Fraction(1))
        assert (rewards["overlap"], rewards["sum_of_radii"]) == (0, math.fsum(radius for _, _, radius in scored))
    width, circles = PUBLISHED["circles-in-rectangle-21"]
    width, scored = output_of("circles-in-rectangle-21", [width, [[x, y, r + excess] for x, y, r in circles]])
    assert not exact_overlap(scored, Fraction(width), 2 - Fraction(width))


def gap(first: list[float], second: list[float]) -> float:
    """Return the widest gap between two hexagons along a normal of their edges, with 64 bits of precision."""

    def corners(x: float, y: float, degrees: float) -> Any:
        turns = np.longdouble(degrees % 60) * PI / 180 + np.arange(6) * PI / 3
        return np.stack([x + np.cos(turns), y + np.sin(turns)])

    one, two = corners(*first), corners(*second)
    turns = np.concatenate(
        [np.longdouble(each[2] % 60) * PI / 180 + (np.arange(6) + 0.5) * PI / 3 for each in (first, second)]
    )
    normals = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    return float(((normals @ two).min(axis=1) - (normals @ one).max(axis=1)).max())


@pytest.mark.parametrize("squeeze", [0.0, 1e-10, 2e-7])
def test_no_tolerance_is_left_in_a_packing_of_hexagons(squeeze: float) -> None:
    """Hexagons that are moved into each other are moved apart again, so that nothing is gained."""
    for slug in ("hexagons-11", "hexagons-12"):
        answer = [[x * (1 - squeeze), y * (1 - squeeze), degrees] for x, y, degrees in PUBLISHED[slug]]
        assert evaluator(slug)(answer)["overlap"] == 0
        assert min(gap(first, second) for first, second in combinations(output_of(slug, answer), 2)) >= 0
    assert evaluator("hexagons-11")([[x * 0.9, y * 0.9, d] for x, y, d in PUBLISHED["hexagons-11"]])["overlap"] > 0.01


def test_a_hull_far_from_the_origin_keeps_its_area() -> None:
    """Products of large coordinates cancel; a hull that seems small would make every triangle a large share of it."""
    six = evaluator("heilbronn-convex-13", N=6)
    far = [[1e8 + x, 1e8 + y] for x, y in ((2, 0), (1, 2), (-1, 2), (-2, 0), (-1, -2), (1, -2))]
    assert six(far)["smallest_area"] == pytest.approx(1 / 6)
    with pytest.raises(InvalidAnswerError, match="on a line"):
        six([[float(i), 1e9] for i in range(6)])


def test_what_exceeds_1_fills_up_the_rest() -> None:
    score = evaluator("erdos-minimum-overlap")
    honest = score(PUBLISHED["erdos-minimum-overlap"])
    # More than 1 in the middle, as much as is accepted, gains nothing.
    heights = [h * (1 + 5e-7) if h > 0.9 else h for h in PUBLISHED["erdos-minimum-overlap"]]
    assert score(heights)["excess"] == 0
    assert score(heights)["overlap"] == pytest.approx(honest["overlap"], abs=1e-6)
    stored = output_of("erdos-minimum-overlap", heights)
    assert math.fsum(stored) == pytest.approx(len(stored) / 2, abs=1e-12)
    assert 0 <= min(stored) <= max(stored) <= 1
    assert score([0, 3, 0, 1])["excess"] > 0.1


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


@pytest.mark.parametrize("exponent", [-1071, -540, -268, 28])
def test_tiny_and_huge_answers_score_as_those_of_usual_size(exponent: int) -> None:
    """No product underflows: a constant that misses terms would be a record."""
    size = 2.0**exponent
    for slug in ("autocorrelation-1", "autocorrelation-2", "autocorrelation-3", "erdos-minimum-overlap"):
        score = evaluator(slug)
        for heights in ([1.0], [1.0] * 2000, [0.0, 1.0, 3.0, 1.0]):
            if len(heights) > 1 or slug != "erdos-minimum-overlap":
                assert score([size * height for height in heights]) == score(heights)
    for slug, dimensions in (("distance-ratio-2d-16", 2), ("distance-ratio-3d-14", 3)):
        score = evaluator(slug, N=2**dimensions)
        grid = [[float(i >> k & 1) for k in range(dimensions)] for i in range(2**dimensions)]
        assert score([[size * x for x in point] for point in grid]) == score(grid)
        with pytest.raises(InvalidAnswerError, match="coincide"):
            score([[size * x for x in point] for point in [*grid[1:], grid[1]]])


def test_a_point_far_from_the_triangle_is_moved_into_it() -> None:
    (*_, far) = output_of("heilbronn-triangle-11", [[0.0, 0.0]] * 10 + [[567182122.0562006, 567182122.7510681]])
    assert sum(map(Fraction, far)) <= 1 + Fraction(1e-15)


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
    for wrong in ([5.0, 5.0], [0.0], [-1.0], [5000.0], [1.0] * 17, "5"):
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
