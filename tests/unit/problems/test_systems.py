"""The set ``systems``: known heuristics meet the targets that are named after them, and the seed programs do not."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.domain.problem import Problem
from speciate.problems.loader import bundled_sets, load_problem
from tests.support.script_evaluators import InvalidAnswerError, evaluator_in
from tests.unit.problems.system_heuristics import HEURISTICS

SET = bundled_sets()["systems"]

LEVELS = [
    ("cache-eviction", "lru", set()),
    ("cache-eviction", "lfu", {"beats_lru", "fewest_bytes"}),
    ("cache-eviction", "hyperbolic", {"beats_lru"}),
    ("cache-eviction", "lfu_size", {"fewest_objects"}),
    ("cache-eviction", "gdsf", {"beats_lru", "aged_frequency"}),
    ("job-scheduling", "shortest", {"fastest"}),
    ("job-scheduling", "earliest_deadline", set()),
    ("job-scheduling", "response_ratio", {"fair"}),
    ("job-scheduling", "tardiness", {"fair", "in_time"}),
    ("expert-placement", "balanced", {"balanced"}),
    ("expert-placement", "lazy", {"balanced_and_lazy"}),
    ("spot-instances", "greedy", {"greedy"}),
    ("spot-instances", "eager", {"early"}),
    ("spot-instances", "uniform_progress", set()),
    ("telemetry-compression", "adaptive", {"adaptive"}),
    ("telemetry-compression", "fixed_predictors", {"adaptive", "fixed_predictors"}),
]


def names_of(problem: Problem, met: int) -> set[str]:
    return {target.name for i, target in enumerate(problem.targets) if met >> i & 1}


def rewards_of(slug: str, change: str) -> dict[str, float]:
    """Return the rewards of a seed program with functions replaced."""
    path = SET.problems[slug]
    names: dict[str, Any] = {}
    exec(f"{load_problem(path).seed_program}\n{change}", names)
    return evaluator_in(path)(lambda name, *arguments: names[name](*arguments))


def test_the_set_is_whole() -> None:
    folder: Path = next(iter(SET.problems.values())).parent
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(SET.problems) == set(HEURISTICS)
    for path in SET.problems.values():
        problem = load_problem(path)
        assert problem.slug == path.name
        assert problem.source.strip()
        selected = {objective.name for objective in problem.space.selected}
        held_out = {o.name for o in problem.objectives if o.name.startswith("held_out_")}
        assert len(selected) >= 2
        assert {f"held_out_{name}" for name in selected} <= held_out
        assert not selected & held_out
        (unlock,) = (target for target in problem.targets if target.unlock)
        assert "held_out_" in unlock.rule


def test_every_known_heuristic_is_measured() -> None:
    assert {(slug, name) for slug, name, _ in LEVELS} == {(s, n) for s, all_ in HEURISTICS.items() for n in all_}


@pytest.mark.parametrize(("slug", "name", "targets"), LEVELS, ids=[f"{slug}-{name}" for slug, name, _ in LEVELS])
def test_a_known_heuristic_meets_its_targets(slug: str, name: str, targets: set[str]) -> None:
    problem = load_problem(SET.problems[slug])
    rewards = rewards_of(slug, HEURISTICS[slug][name])
    assert names_of(problem, problem.targets_met(problem.space.vector(rewards))) == targets, rewards


def test_no_seed_program_meets_a_target_and_all_are_deterministic(strongest: SandboxEvaluator) -> None:
    for slug, path in SET.problems.items():
        problem = load_problem(path)
        (found,) = strongest.evaluate(problem, [problem.seed_program], seeds=[0])
        assert found.rewards is not None, found.failure
        assert found.rewards == problem.space.vector(rewards_of(slug, ""))
        assert names_of(problem, problem.targets_met(found.rewards)) == set()


def test_a_target_has_slack_beyond_what_its_heuristic_needs() -> None:
    """A request, a job or a move more does not decide: the named heuristic has two units of every measure left."""
    units = {"object_misses": 100 / 900, "late": 100 / 450, "moved": 1 / 90, "cost": 100 / 3600, "finish": 100 / 1728}
    for slug, name, names in LEVELS:
        problem, rewards = load_problem(SET.problems[slug]), rewards_of(slug, HEURISTICS[slug][name])
        for target, rule in zip(problem.targets, problem.rules, strict=True):
            worse = {n: v + 2 * units.get(n.removeprefix("held_out_"), 0.0) for n, v in rewards.items()}
            if target.name in names and target.name != "beats_lru":
                assert rule.holds(problem.space.vector(worse)), (slug, target.name, rewards)


def test_notes_tell_of_the_parts_that_are_shown_only() -> None:
    for slug, path in SET.problems.items():
        notes: dict[str, str] = {}
        names: dict[str, Any] = {}
        exec(load_problem(path).seed_program, names)
        evaluator_in(path)(lambda name, *arguments: names[name](*arguments), notes)  # noqa: B023
        assert notes, slug
        assert sum(map(len, notes.values())) < 300
        assert "held" not in str(notes)


@pytest.mark.parametrize(
    ("slug", "answer", "reason"),
    [
        ("cache-eviction", "def evict(caches):\n    return [[-1]] * len(caches)", "evict: expected positions"),
        ("cache-eviction", "def evict(caches):\n    return [[]] * len(caches)", "evict: expected positions"),
        ("cache-eviction", "def evict(caches):\n    return []", "evict: expected a list"),
        ("job-scheduling", "def pick(queues):\n    return [0.5] * len(queues)", "pick: expected a position"),
        ("job-scheduling", "def pick(queues):\n    return None", "pick: expected a list"),
        ("expert-placement", "def place(models):\n    return [[[0]] * 8] * len(models)", "every expert"),
        ("expert-placement", "def place(models):\n    return [[[0, 0]] * 8] * len(models)", "different experts"),
        ("spot-instances", "def choose(jobs):\n    return [3] * len(jobs)", "expected 0"),
        ("telemetry-compression", "def predict(series):\n    return [[0, 31]] * len(series)", "from 0 to 30"),
        ("telemetry-compression", "def predict(series):\n    return [[0.5, 1]] * len(series)", "whole numbers"),
    ],
)
def test_a_wrong_answer_ends_the_evaluation(slug: str, answer: str, reason: str) -> None:
    with pytest.raises(InvalidAnswerError, match=reason):
        rewards_of(slug, answer)


@pytest.mark.parametrize("slug", SET.problems)
def test_a_program_that_prints_its_inputs_shows_no_held_out_ones(slug: str, strongest: SandboxEvaluator) -> None:
    path = SET.problems[slug]
    problem = load_problem(path)
    names: dict[str, Any] = {}
    exec(problem.seed_program, names)
    hidden: list[Any] = []
    called: list[str] = []

    def answer(name: str, *arguments: Any) -> Any:
        called.append(name)
        return names[name](*arguments)

    evaluator_in(path)(answer, hidden=hidden)
    printing = "import zlib\nown = {0}\ndef {0}(x):\n    print(zlib.crc32(repr(x).encode()))\n    return own(x)\n"
    program = f"{problem.seed_program}\n{printing.format(called[0])}"
    (evaluation,) = strongest.evaluate(problem, [program], seeds=[0])
    printed = evaluation.artifacts["stdout"].split()
    assert len(printed) == len(called) - len(hidden)
    assert not set(printed) & {str(zlib.crc32(repr(*json.loads(json.dumps(each))).encode())) for each in hidden}
