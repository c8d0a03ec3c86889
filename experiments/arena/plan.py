"""What the arena compares. Changed only together with the page that it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from experiments.arena.problems import DEVELOPMENT, HELD_OUT
from experiments.arena.simulation import Job
from experiments.arena.standins import CHARACTERS

MARKS: Final = (20, 60, 120, 240, 1000)
"""Evaluations at which the best value is compared. No strategy knows its budget, so that one run answers for all."""
HALVES: Final = {"development": (DEVELOPMENT, 1), "verdict": (HELD_OUT, 1001)}
"""Problems of each half, and its first seed. Nothing was chosen by runs of the second one."""
DEFAULT: Final = "adaptive_evolution"
_ALONE: Final = {"lanes": 1, "batch": 1, "samples_per_prompt": 1}


@dataclass(frozen=True, slots=True)
class Arm:
    """A strategy or a rule with the options that are not defaults."""

    strategy: str
    options: Mapping[str, Any]
    spec: Mapping[str, Any]


ARMS: Final[Mapping[str, Arm]] = {
    DEFAULT: Arm(DEFAULT, {}, {}),
    "without polish": Arm(DEFAULT, {"polish": False}, {}),
    "vector_evolution, 4 × 16": Arm("vector_evolution", {}, {"lanes": 4}),
    "vector_evolution": Arm("vector_evolution", {}, _ALONE),
    "islands_map_elites": Arm("islands_map_elites", {}, _ALONE),
    "mind_evolution": Arm("mind_evolution", {}, _ALONE),
    "sequential_revision": Arm("sequential_revision", {}, _ALONE),
    "independent samples": Arm("best_of_n", {}, _ALONE),
    "change the best": Arm("greedy", {}, _ALONE),
    "change the best, or any with .3": Arm("greedy", {"explore": 0.3}, _ALONE),
}
IN_FLIGHT: Final[Mapping[str, Arm]] = {
    f"{name}, at most {lanes} in flight": Arm(strategy, options, {"lanes": lanes, "batch": 1, "samples_per_prompt": 1})
    for name, strategy, options in ((DEFAULT, DEFAULT, {}), ("the rule with .3", "greedy", {"explore": 0.3}))
    for lanes in (1, 4, 16, 64)
}
LARGEST_IN_FLIGHT: Final = f"{DEFAULT}, at most 64 in flight"
"""The default strategy with the default options of a run, among the arms of ``IN_FLIGHT``."""
CLOCKS: Final = tuple((latency_s, slots) for latency_s in (0.1, 3.0, 20.0) for slots in (2, 16))
"""Median seconds of a request, and evaluations at once; an evaluation takes half a second."""
MINUTES: Final = (2, 10, 30)
"""Simulated time at which the arms in flight are compared."""


def jobs(
    half: str, arms: Mapping[str, Arm], *, seeds: int, evaluations: int, character: str = CHARACTERS[0], **clock: Any
) -> Iterator[tuple[str, Job]]:
    """Yield the name of the arm and the search for every problem, seed and arm."""
    problems, first = HALVES[half]
    for seed in range(first, first + seeds):
        for problem in problems:
            for name, arm in arms.items():
                options, spec = json.dumps(dict(arm.options)), json.dumps(dict(arm.spec))
                yield name, Job(problem, character, arm.strategy, options, spec, evaluations, seed, **clock)
