"""The bundled problems: hand-made answers score as computed by hand, and no seed has its unlock."""

import json
import math
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.candidate import FailureKind
from speciate.domain.problem import Problem
from speciate.problems.loader import bundled, load_problem
from speciate.prompts.failures import note_text

Score = Callable[[Problem, str], dict[str, float]]

SLUGS = ("circle-packing-26", "online-bin-packing", "planck-radiation", "relativistic-energy", "sorting-network-8")


GENERATOR = Path(__file__).parents[3] / "scripts" / "generate_problem_data.py"


def problem_of(slug: str) -> Problem:
    return load_problem(bundled()[slug])


def met(problem: Problem, rewards: dict[str, float]) -> set[str]:
    mask = problem.targets_met([rewards[name] for name in problem.space.names])
    return {target.name for i, target in enumerate(problem.targets) if mask >> i & 1}


def answer(value: object) -> str:
    """Return a program whose ``solve`` returns a value."""
    return f"nan = float('nan')\ninf = float('inf')\ndef solve():\n    return {value!r}\n"


def test_these_come_along() -> None:
    assert tuple(bundled()) == SLUGS


@pytest.mark.parametrize("slug", SLUGS)
def test_the_slug_is_the_directory_and_everything_is_told(slug: str) -> None:
    problem = problem_of(slug)
    assert problem.slug == slug
    assert problem.source
    assert problem.description
    assert all(objective.description for objective in problem.objectives)
    assert all(target.description for target in problem.targets)
    assert "EVOLVE-BLOCK-START" in problem.seed_program


@pytest.mark.parametrize("slug", SLUGS)
def test_the_seed_scores_the_same_in_the_broker_and_reaches_no_target(
    strongest: SandboxEvaluator, slug: str, score: Score
) -> None:
    problem = problem_of(slug)
    rewards = score(problem, problem.seed_program)
    assert all(map(math.isfinite, rewards.values()))
    assert met(problem, rewards) == set()
    first, second = strongest.evaluate(problem, [problem.seed_program] * 2, seeds=[0, 1])
    assert first.rewards == second.rewards == tuple(rewards.values())


def test_the_data_is_what_its_generator_writes() -> None:
    files = runpy.run_path(str(GENERATOR))["data_files"]()
    assert set(files) == {path for directory in bundled().values() for path in directory.glob("*.json")}
    for path, content in files.items():
        assert json.loads(path.read_text()) == content


# --- circle packing


def grid() -> list[list[float]]:
    """A 5 x 5 grid of circles and one in a gap between four of them: 2.5 + 0.1 * (sqrt(2) - 1)."""
    circles = [[0.1 + 0.2 * i, 0.1 + 0.2 * j, 0.1] for i in range(5) for j in range(5)]
    return [*circles, [0.2, 0.2, 0.1 * (math.sqrt(2) - 1)]]


def test_a_grid_unlocks_circle_packing(score: Score) -> None:
    problem = problem_of("circle-packing-26")
    rewards = score(problem, answer(grid()))
    assert rewards["sum_of_radii"] == pytest.approx(2.5 + 0.1 * (math.sqrt(2) - 1), abs=1e-9)
    assert rewards["smallest_radius"] == pytest.approx(0.1 * (math.sqrt(2) - 1), abs=1e-9)
    assert rewards["covered_area"] == pytest.approx(math.pi * (0.25 + 0.01 * (math.sqrt(2) - 1) ** 2))
    assert rewards["overlap"] == 0
    assert met(problem, rewards) == {"first_level", "beyond_grid"}


def test_an_overlap_gains_nothing(score: Score) -> None:
    problem = problem_of("circle-packing-26")
    circles = grid()
    circles[0][2] += 0.01
    rewards = score(problem, answer(circles))
    assert rewards["overlap"] == pytest.approx(0.01)
    assert rewards["sum_of_radii"] == pytest.approx(2.5 + 0.1 * (math.sqrt(2) - 1) + 0.01 - 26 * 0.01)
    assert met(problem, rewards) == set()


def test_rounding_is_paid_for_by_every_radius(score: Score) -> None:
    problem = problem_of("circle-packing-26")
    tight = [[x, y, r + 4e-10] for x, y, r in grid()]
    rewards = score(problem, answer(tight))
    assert rewards["overlap"] == 0
    assert rewards["sum_of_radii"] < score(problem, answer(grid()))["sum_of_radii"]


def test_all_circles_on_one_spot_are_counted_as_points(score: Score) -> None:
    rewards = score(problem_of("circle-packing-26"), answer([[0.5, 0.5, 0.5]] * 26))
    assert rewards == {"sum_of_radii": 0, "smallest_radius": 0, "covered_area": 0, "overlap": 1}


# --- sorting networks

OPTIMAL = [
    [(0, 2), (1, 3), (4, 6), (5, 7)],
    [(0, 4), (1, 5), (2, 6), (3, 7)],
    [(0, 1), (2, 3), (4, 5), (6, 7)],
    [(2, 4), (3, 5)],
    [(1, 4), (3, 6)],
    [(1, 2), (3, 4), (5, 6)],
]
"""The published network of 19 comparators in depth 6 (Knuth 5.3.4; Bert Dobbelaere's list)."""


def test_the_published_network_is_optimal(score: Score) -> None:
    problem = problem_of("sorting-network-8")
    rewards = score(problem, answer([list(pair) for layer in OPTIMAL for pair in layer]))
    assert rewards["comparators"] == 19
    assert rewards["depth"] == 6
    assert met(problem, rewards) == {target.name for target in problem.targets}


def test_no_comparators_sort_only_what_is_sorted_already(score: Score) -> None:
    rewards = score(problem_of("sorting-network-8"), answer([]))
    assert rewards == {"comparators": 0, "depth": 0, "unsorted": 256 - 9}


def test_a_reversed_comparator_puts_the_smaller_value_where_it_says(score: Score) -> None:
    # [7, 0] undoes the seven sorted inputs with a zero on wire 0 and a one on wire 7, and sorts no other.
    assert score(problem_of("sorting-network-8"), answer([[7, 0]]))["unsorted"] == 256 - 2


# --- formulas

PLANCK = "import math\ndef predict(points):\n    return [w**3 / math.pi**2 / {} for w, t in points]\n"


def test_plancks_law_and_its_limits_reach_their_targets(score: Score) -> None:
    problem = problem_of("planck-radiation")
    assert met(problem, score(problem, PLANCK.format("math.expm1(w / t)"))) == {"rough_everywhere", "wien_limit", "law"}
    assert met(problem, score(problem, PLANCK.format("math.exp(w / t)"))) == {"wien_limit"}
    rayleigh_jeans = score(problem, PLANCK.format("(w / t)"))
    assert rayleigh_jeans["digits_low"] > 1
    assert rayleigh_jeans["digits_high"] < 0
    assert met(problem, rayleigh_jeans) == set()


def test_a_formula_that_is_off_by_a_tenth_has_one_digit(score: Score) -> None:
    rewards = score(problem_of("planck-radiation"), PLANCK.format("math.expm1(w / t) * 1.1"))
    assert rewards["digits_middle"] == pytest.approx(1)


def test_einsteins_law_and_newtons_reach_their_targets(score: Score) -> None:
    problem = problem_of("relativistic-energy")
    program = "def predict(points):\n    return [m * c * c * ({}) for m, v, c in points]\n"
    law = score(problem, program.format("1 / (1 - v * v / c / c) ** 0.5"))
    assert met(problem, law) == {"two_digits_slow", "rough_everywhere", "law"}
    newton = score(problem, program.format("1 + v * v / c / c / 2"))
    assert met(problem, newton) == {"two_digits_slow"}


def test_a_region_in_which_the_formula_fails_does_not_spoil_the_others(score: Score) -> None:
    rewards = score(problem_of("planck-radiation"), PLANCK.format("(math.expm1(w / t) if w > t / 4 else 0)"))
    assert rewards["digits_low"] == -6
    assert rewards["digits_high"] > 11


def test_the_note_on_a_region_that_fails_has_the_traceback(strongest: SandboxEvaluator) -> None:
    problem = problem_of("planck-radiation")
    program = PLANCK.format("(math.expm1(w / t) if w > t / 4 else 0)")
    (evaluation,) = strongest.evaluate(problem, [program], seeds=[0])
    assert evaluation.artifacts["low"].startswith("Traceback (most recent call last):")
    told = note_text(evaluation.artifacts["low"], problem, program)
    assert told.startswith("ZeroDivisionError: float division by zero\nat line 3: return [")


@pytest.mark.parametrize("packed", [False, True])
def test_a_table_of_values_is_no_law(packed: bool, score: Score) -> None:
    problem = problem_of("relativistic-energy")
    regions = json.loads(problem.files["points.json"]).values()
    table = {str(point): value for r in regions for point, value in zip(r["inputs"], r["outputs"], strict=True)}
    text = f"import json\nT = json.loads({json.dumps(table)!r})\n" if packed else f"T = {table!r}\n"
    rewards = score(problem, text + "def predict(points):\n    return [T[str(point)] for point in points]\n")
    assert rewards["digits_extreme"] > 11
    assert "law" not in met(problem, rewards)


@pytest.mark.parametrize("slug", ["planck-radiation", "relativistic-energy"])
def test_a_table_is_no_law_however_it_is_packed(slug: str, score: Score) -> None:
    """Each value is a mantissa of 38 bits and an exponent of 6, and all are one text of 165 characters."""
    problem = problem_of(slug)
    regions = json.loads(problem.files["points.json"]).values()
    pairs = [math.frexp(value) for region in regions for value in region["outputs"]]
    bits = "".join(f"{int(mantissa * 2**38):038b}{exponent + 31:06b}" for mantissa, exponent in pairs)
    text = "".join(chr(0x20000 + int(bits[i : i + 16], 2)) for i in range(0, len(bits), 16))
    program = f"""N = 0
for c in "{text}":
    N = N << 16 | ord(c) - 131072
def predict(points):
    at = 40 - 20 * {[region["inputs"][0][0] for region in regions]}.index(points[0][0])
    values = [N >> 44 * (at + 19 - i) for i in range(20)]
    return [(v >> 6 & 2**38 - 1) / 2**38 * 2.0 ** ((v & 63) - 31) for v in values]
"""
    rewards = score(problem, program)
    assert rewards["size"] <= 120
    assert all(rewards[name] > 11 for name in problem.space.names[:3])
    assert "law" not in met(problem, rewards)


def test_points_elsewhere_are_a_programs_own_and_stay_so(score: Score) -> None:
    problem, program = problem_of("planck-radiation"), PLANCK.format("math.expm1(w / t) * 1.1 ** (w % 1)")
    first, again, other = (score(problem, text) for text in (program, program, program + "# another\n"))
    assert first == again
    assert first["digits_elsewhere"] != other["digits_elsewhere"]
    assert {**first, "digits_elsewhere": 0} == {**other, "digits_elsewhere": 0}


# --- bin packing

BY_SCORE = """
def choose(offers):
    return [max(range(len(rooms)), key=lambda k: score(item, rooms[k], rooms[-1], k)) for item, rooms in offers]
"""
FIRST_FIT = "def score(item, room, capacity, position):\n    return -position\n" + BY_SCORE
BEST_FIT = "def score(item, room, capacity, position):\n    return -room\n" + BY_SCORE
LEAVE_NO_SCRAPS = (
    """
LEVELS = ((2, 4), (3, 3), (5, 2), (7, 1), (9, 0.9), (12, 0.95), (15, 0.97), (21, 0.98), (150, 0.99))
def score(item, room, capacity, position):
    gap = 150 * (room - item) / capacity
    return next(value for limit, value in LEVELS if gap <= limit)
"""
    + BY_SCORE
)
"""What FunSearch found for the OR instances, in few words: fill a bin nearly full or leave it room for another item."""


def test_first_fit_and_best_fit_stand_where_the_problem_says(score: Score) -> None:
    problem = problem_of("online-bin-packing")
    best = score(problem, BEST_FIT)
    assert best == score(problem, problem.seed_program)
    assert [round(value, 2) for value in best.values()] == [6.13, 11.5, 7.41]
    assert [round(value, 2) for value in score(problem, FIRST_FIT).values()] == [6.62, 11.5, 8.45]
    # Who has clearly less excess on the other two may have as much on triplets as both.
    assert met(problem, {"excess_or1": 5.2, "excess_triplet": best["excess_triplet"], "excess_weibull": 6.5}) == {
        "clearly_below_best_fit",
        "funsearch_or1_level",
    }


def test_funsearchs_rule_is_better_on_its_families_and_pays_on_triplets(score: Score) -> None:
    problem = problem_of("online-bin-packing")
    best, found = score(problem, BEST_FIT), score(problem, LEAVE_NO_SCRAPS)
    assert found["excess_or1"] <= 5.64
    assert found["excess_weibull"] <= 6.82
    assert found["excess_triplet"] > best["excess_triplet"]


def test_a_bin_for_each_item_is_counted(score: Score) -> None:
    problem = problem_of("online-bin-packing")
    rewards = score(problem, "def choose(offers):\n    return [len(rooms) - 1 for _, rooms in offers]\n")
    triplets = json.loads(problem.files["instances.json"])["triplet"]["instances"]
    assert all(instance["lower_bound"] == 40 for instance in triplets)
    assert rewards["excess_triplet"] == pytest.approx(100 * (120 / 40 - 1))


def test_the_lower_bound_is_the_one_of_martello_and_toth() -> None:
    lower_bound = runpy.run_path(str(GENERATOR))["lower_bound"]
    assert lower_bound([6, 6, 6], 10) == 3  # volume alone says 2
    assert lower_bound([5, 5, 5, 5], 10) == 2
    assert lower_bound([7, 4, 4, 4], 10) == 3  # nothing of 4 fits beside 7, two of the three share a bin
    assert lower_bound([10], 10) == 1


# --- cheats, through the real sandbox

CIRCLE = "[0.5, 0.5, 0.0]"
CHEATS = {
    "circle-packing-26": [
        f"[{CIRCLE}] * 25",
        f"[{CIRCLE}] * 27",
        f"[{CIRCLE}] * 25 + [[0.5, 0.5, -1.0]]",
        f"[{CIRCLE}] * 25 + [[5.5, 0.5, 1.0]]",
        f"[{CIRCLE}] * 25 + [[0.5, 0.5, True]]",
        f"[{CIRCLE}] * 25 + [[0.5, 0.5, float('nan')]]",
        f"[{CIRCLE}] * 25 + [[0.5, 0.5, 10 ** 400]]",
        f"[{CIRCLE}] * 25 + [[0.5, 0.5, '1']]",
        f"[{CIRCLE}] * 25 + [[0.5, 0.5]]",
        f"[{CIRCLE}] * 200000",
        "{'sum_of_radii': 9}",
        "None",
    ],
    "sorting-network-8": [
        "[[0, 1]] * 65",
        "[[0, 0]]",
        "[[0, 8]]",
        "[[-1, 0]]",
        "[[False, True]]",
        "[[0.0, 1.0]]",
        "[[0, 1, 2]]",
        "'sorted'",
        "[0, 1]",
    ],
}


@pytest.mark.parametrize("slug", CHEATS)
def test_what_breaks_the_rules_is_invalid_output(strongest: SandboxEvaluator, slug: str) -> None:
    problem = problem_of(slug)
    programs = [f"def solve():\n    return {value}\n" for value in CHEATS[slug]]
    evaluations = strongest.evaluate(problem, programs, seeds=[0] * len(programs))
    assert [e.failure and e.failure.kind for e in evaluations] == [FailureKind.INVALID_OUTPUT] * len(programs)


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "[0] * 1000",
        "[-1] * len(offers)",
        "[10 ** 9] * len(offers)",
        "[True] * len(offers)",
        "[0.0] * len(offers)",
        "{}",
    ],
)
def test_a_choice_that_was_not_offered_is_invalid(body: str, score: Score, ended: type[Exception]) -> None:
    with pytest.raises(ended):
        score(problem_of("online-bin-packing"), f"def choose(offers):\n    return {body}\n")


@pytest.mark.parametrize("slug", ["planck-radiation", "relativistic-energy"])
@pytest.mark.parametrize(
    "body", ["[]", "[1.0] * 21", "[True] * 20", "['1'] * 20", "[10 ** 400] * 20", "3", "[float('nan')] * 20"]
)
def test_a_prediction_that_is_not_numbers_is_invalid(
    slug: str, body: str, score: Score, ended: type[Exception]
) -> None:
    with pytest.raises(ended):
        score(problem_of(slug), f"def predict(points):\n    return {body}\n")
