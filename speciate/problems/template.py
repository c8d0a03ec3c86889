"""The small, complete problem that ``speciate problems init`` writes for an author to start from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from speciate.domain.errors import ConflictError

_PROBLEM: Final = '''\
# A problem for Speciate: what a candidate is, how it is scored, and what counts as unlocking it.
# Change it, then run: speciate problems check DIRECTORY

SLUG# lower-case words joined by hyphens; versions of a problem share it
title = "Spread ten points in a square"
source = "An example to start from"
kind = "evaluator"                     # a program, scored by evaluate.py from another process
seed = "seed.py"                       # the first member of the population
evaluator = "evaluate.py"
# files = ["instances.json"]           # further text files for the evaluator: context.files["instances.json"]

# The task as the policy reads it: the function to define, the rules.
description = """
Write a Python program that defines `solve()`. It takes nothing and returns ten points [x, y] of the unit square
that keep far from each other and, on average, close to the middle.
"""

# The reward vector, in this order. The evaluator returns one finite number for each name.
[[objectives]]
name = "smallest_distance"
direction = "maximize"                 # or "minimize"
range = [0.0, 0.5]                     # the scale on which objectives are compared; values may lie outside
description = "Distance of the two closest points"

[[objectives]]
name = "mean_offset"
direction = "minimize"
range = [0.0, 0.7]
description = "Mean distance from the middle of the square"

[[objectives]]
name = "outside"
direction = "minimize"
role = "constraint"                    # must meet its limit; "record" is written down and never selected on
limit = 0.0
range = [0.0, 10.0]
description = "Points outside the square"

# Named rules over the rewards. The first candidate to meet one is put on record; exactly one unlocks the problem.
[[targets]]
name = "loose"
rule = "smallest_distance >= 0.3 and outside <= 0"

[[targets]]
name = "tight"
rule = "smallest_distance >= 0.4 and outside <= 0"
unlock = true

[limits]                               # for one evaluation
wall_s = 1.0
cpu_s = 1.0
'''

_SEED: Final = '''\
"""Two rows of points. Search changes what stands between the two marks."""


# EVOLVE-BLOCK-START
def points():
    lower = [[0.2 + 0.15 * i, 0.35] for i in range(5)]
    upper = [[0.2 + 0.15 * i, 0.65] for i in range(5)]
    return lower + upper
# EVOLVE-BLOCK-END


def solve():
    return points()
'''

_EVALUATOR: Final = '''\
"""Score ten points in the unit square. The candidate runs in another process and returns only JSON values."""

import math


def evaluate(candidate, context):
    """Return one finite number for every objective of problem.toml."""
    points = candidate.call("solve").unwrap()  # without an answer, the candidate's failure ends the evaluation
    if not is_list_of_points(points):
        context.invalid("solve: expected ten points [x, y], finite numbers")
    pairs = [(points[i], points[j]) for i in range(10) for j in range(i)]
    offsets = [math.dist(point, (0.5, 0.5)) for point in points]
    context.note("furthest", f"the furthest point is {max(offsets):.3f} from the middle")  # feedback for prompts
    return {
        "smallest_distance": min(math.dist(a, b) for a, b in pairs),
        "mean_offset": sum(offsets) / 10,
        "outside": float(sum(not (0 <= x <= 1 and 0 <= y <= 1) for x, y in points)),
    }


def is_list_of_points(value):
    """Return True if a value is ten pairs of numbers of plausible size; booleans are not numbers."""
    return (
        isinstance(value, list)
        and len(value) == 10
        and all(isinstance(point, list) and len(point) == 2 for point in value)
        and all(type(number) in (int, float) and abs(number) < 1e6 for point in value for number in point)
    )
'''

_SLUG: Final = "SLUG"
_TEMPLATE: Final = {"problem.toml": _PROBLEM, "seed.py": _SEED, "evaluate.py": _EVALUATOR}
SCHEMA: Final = Path(__file__).with_name("problem.schema.json")
"""JSON schema of ``problem.toml`` for editors, generated from the model by ``make reference``."""


def example() -> dict[str, str]:
    """Return the files of the template as a problem with an example name."""
    return _files(Path("spread-points"))


def write_template(directory: Path) -> list[Path]:
    """Write the template and the schema into a directory, created if missing, and return the files.

    The problem takes the name of the directory.

    Raises:
        ConflictError: One of the files already exists; no file was written.
    """
    texts = _files(directory) | {SCHEMA.name: SCHEMA.read_text(encoding="utf-8")}
    texts["problem.toml"] = f"#:schema ./{SCHEMA.name}\n{texts['problem.toml']}"
    paths = [directory / name for name in texts]
    if present := [path for path in paths if path.exists()]:
        raise ConflictError(f"{present[0]} already exists.", remedy="Name a new directory, or move the file away.")
    directory.mkdir(parents=True, exist_ok=True)
    for path in paths:
        path.write_text(texts[path.name], encoding="utf-8")
    return paths


def slug_of(directory: Path, otherwise: str) -> str:
    """Return a slug made from the name of a directory, or ``otherwise`` if the name has no letters."""
    return slug_of_text(directory.resolve().name, otherwise)


def slug_of_text(text: str, otherwise: str) -> str:
    """Return a slug made from the words of a text, or ``otherwise`` if it has no letters and digits."""
    words = re.findall("[a-z0-9]+", text.lower())
    return "-".join(words)[:80].rstrip("-") or otherwise


def _files(directory: Path) -> dict[str, str]:
    line = f'slug = "{slug_of(directory, "spread-points")}"'.ljust(38) + " "
    return {name: text.replace(_SLUG, line) for name, text in _TEMPLATE.items()}
