"""Run summaries against brute force."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.reward import RewardSpace
from speciate.storage.declarations.summaries import _answers as read_answers
from speciate.storage.declarations.summaries import final_score
from speciate.tournaments.report.run_summary import POLICY_NUMBERS, Answers, Completions, budgets, health, quality
from speciate.tournaments.statistics.estimators import spread
from tests.unit.tournaments.synthetic import schedule_of

samples = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8), st.integers(0, 8)), max_size=9)


_NOTHING_SAID = Completions(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool))


def test_a_reward_of_any_size_gives_a_score_that_can_be_added() -> None:
    facts = {"scalar": None, "policy": "p@1", "rollout_id": None, "spent_evaluations": 1, "duplicate": False}
    row = SimpleNamespace(rewards=[1e307], **facts)
    answers = read_answers([row], RewardSpace((Objective(name="x"),)), {"p@1": 0})  # type: ignore[list-item]
    assert math.isfinite(1000 * float(quality(answers, np.ones(1))["score"]))  # type: ignore[arg-type]


@given(samples)
def test_spread_is_the_mean_over_pairs_within_and_across(rows: list[tuple[int, int, int]]) -> None:
    groups = [row[0] for row in rows]
    points = np.array([row[1:] for row in rows], dtype=float).reshape(-1, 2)
    pairs = list(itertools.combinations(range(len(rows)), 2))
    found = spread(points, groups)
    for same, value in zip((True, False), found, strict=True):
        far = [float(np.abs(points[i] - points[j]).sum()) for i, j in pairs if (groups[i] == groups[j]) is same]
        assert math.isnan(value) if not far else value == pytest.approx(np.mean(far), abs=1e-12)


def _answers(rewards: list[list[float] | None], **changes: object) -> Answers:
    n, k = len(rewards), max((len(row) for row in rewards if row), default=2)
    given = {
        "rewards": np.array([row or [0.0] * k for row in rewards], dtype=float).reshape(n, k),
        "scores": np.array([sum(row) if row else 0.0 for row in rewards]),
        "valid": np.array([row is not None for row in rewards], dtype=bool),
        "spent": np.arange(1, n + 1),
        "policy": np.zeros(n, dtype=np.int64),
        "rollout": np.arange(n),
        "duplicate": np.zeros(n, dtype=bool),
        **changes,
    }
    return Answers(**given)  # type: ignore[arg-type]


def test_best_scores_so_far_are_those_at_each_budget() -> None:
    answers = _answers([[0.2, 0.0], None, [0.5, 0.1], [0.1, 0.0]], spent=np.array([2, 3, 5, 9]))
    found = quality(answers, np.array([1.0, 2.0, 4.0, 5.0, 10.0]))
    assert found["best_by"] == pytest.approx([0.0, 0.2, 0.2, 0.6, 0.6])  # type: ignore[comparison-overlap]
    assert found["score"] == pytest.approx(0.6)


def test_a_specialist_with_one_worst_component_has_a_volume() -> None:
    def volume(*rewards: list[float]) -> float:
        return float(quality(_answers([*rewards]), np.ones(1))["hypervolume"])  # type: ignore[arg-type]

    assert volume([1.0, 1.0]) == pytest.approx(1.0)
    assert volume([1.0, 0.0]) == pytest.approx(1.1 * 0.1 / 1.21)
    assert volume([1.0, 0.0], [0.0, 1.0]) > volume([1.0, 0.0])


def test_a_hypervolume_is_a_share_even_for_rewards_beyond_their_range() -> None:
    for k in (1, 2, 4, 6):
        found = quality(_answers([[3.0] * k, [1.0] * (k - 1) + [7.0]]), np.ones(1))
        assert found["hypervolume"] == pytest.approx(1.0)  # type: ignore[comparison-overlap]
    one_end = quality(_answers([[9.0, 0.0]]), np.ones(1))
    assert one_end["hypervolume"] == pytest.approx(1.1 * 0.1 / 1.21)  # type: ignore[comparison-overlap]


def test_a_run_without_candidates_scores_zero() -> None:
    found = quality(_answers([]), np.array([1.0, 5.0]))
    assert (found["score"], found["hypervolume"], list(found["best_by"])) == (0.0, 0.0, [0.0, 0.0])  # type: ignore[arg-type]
    assert math.isnan(found["diversity"])  # type: ignore[arg-type]


def test_an_infeasible_candidate_counts_as_a_failure() -> None:
    bound = Objective(name="over", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT, limit=0.0)
    space = RewardSpace((Objective(name="x"), bound))
    told = {"policy": "p@1", "rollout_id": None, "spent_evaluations": 1, "duplicate": False}
    rows = [
        SimpleNamespace(rewards=[0.9, 0.5], scalar=-0.6, **told),
        SimpleNamespace(rewards=[0.2, 0.0], scalar=None, **told),
        SimpleNamespace(rewards=None, scalar=None, **told),
        SimpleNamespace(rewards=[0.6, 0.0], scalar=0.3, **told),
    ]
    answers = read_answers(rows, space, {"p@1": 0})  # type: ignore[arg-type]
    assert answers.valid.tolist() == [False, True, False, True]
    assert answers.rewards[:, 0] == pytest.approx([0.0, 0.2, 0.0, 0.6])
    assert answers.scores == pytest.approx([0.0, 0.2, 0.0, 0.3])
    assert quality(answers, np.ones(1))["diversity"] == pytest.approx(0.4)


def test_a_failure_raises_no_score_when_rewards_are_below_their_range() -> None:
    space = RewardSpace((Objective(name="x"), Objective(name="y")))
    told = {"policy": "p@1", "rollout_id": None, "duplicate": False}
    poor = SimpleNamespace(rewards=[-2.0, -3.0], scalar=-2.5, spent_evaluations=1, **told)
    plain = SimpleNamespace(rewards=[-2.0, -0.5], scalar=None, spent_evaluations=2, **told)
    crash = SimpleNamespace(rewards=None, scalar=None, spent_evaluations=3, **told)
    for rows in ([poor, plain], [poor, plain, crash]):
        answers = read_answers(rows, space, {"p@1": 0})  # type: ignore[arg-type]
        found = quality(answers, np.array([1.0, 2.0, 3.0]))
        assert (found["score"], list(found["best_by"])) == (0.0, [0.0, 0.0, 0.0])  # type: ignore[arg-type]
        assert health(answers, _NOTHING_SAID, 0)[POLICY_NUMBERS.index("reward")] == 0.0
    assert answers.rewards.tolist() == [[-2.0, -3.0], [-2.0, -0.5], [0.0, 0.0]]


def test_health_uses_the_policys_own_completions() -> None:
    answers = _answers(
        [[0.0, 0.0], [1.0, 0.0], None, [0.0, 1.0], [0.5, 0.5]],
        policy=np.array([-1, 0, 0, 0, 1]),
        rollout=np.array([-1, 0, 1, 0, 2]),
        duplicate=np.array([False, False, False, True, False]),
    )
    completions = Completions(
        policy=np.array([0, 0, 0, 1]),
        tokens=np.array([10.0, 30.0, 5.0, 7.0]),
        surprise=np.array([1.0, 2.0, np.nan, np.nan]),
        unreadable=np.array([False, True, False, False]),
    )
    first = dict(zip(POLICY_NUMBERS, health(answers, completions, 0), strict=True))
    assert first["rollouts"] == 3
    assert first["answers"] == 3
    assert first["entropy"] == pytest.approx((10 * 1.0 + 30 * 2.0) / 40)
    assert first["unreadable"] == first["failed"] == first["duplicates"] == pytest.approx(1 / 3)
    assert first["reward"] == pytest.approx(2 / 3)
    assert first["within"] == pytest.approx(2.0)
    assert math.isnan(first["across"])
    second = dict(zip(POLICY_NUMBERS, health(answers, completions, 1), strict=True))
    assert math.isnan(second["entropy"])
    assert (second["rollouts"], second["failed"]) == (1, 0)


@pytest.mark.parametrize(("evaluations", "count"), [(1, 1), (3, 3), (200, 8)])
def test_budgets_reach_from_one_evaluation_to_all(evaluations: int, count: int) -> None:
    found = budgets(schedule_of(1, 1, 2, budget={"evaluations": evaluations}).declared)
    assert (found[0], found[-1], len(found)) == (1, evaluations, count)


def test_final_score_is_on_the_scale_of_scores_and_its_errors_add_up() -> None:
    space = RewardSpace(
        (
            Objective(name="x", range=(0.0, 10.0)),
            Objective(name="y", direction=Direction.MINIMIZE, range=(0.0, 4.0)),
            Objective(
                name="size", role=ObjectiveRole.CONSTRAINT, range=(0.0, 1.0), limit=0.5, direction=Direction.MINIMIZE
            ),
        )
    )
    final = {"evaluations": 5, "failed": 0, "mean": [5.0, 1.0, 0.1], "margin": [1.0, 0.2, 0.3]}
    assert final_score(final, space, None) == pytest.approx({"score": (0.5 + 0.75) / 2, "score_margin": 0.075})
    below = final_score({**final, "mean": [-5.0, 1.0, 0.1]}, space, None)
    assert below["score"] == 0.75 / 2, "without weights each objective counts from its worst end, as in other scores"
    weighted = final_score(final, space, {"x": 1.0, "y": 3.0})
    assert weighted == pytest.approx({"score": 0.25 * 0.5 + 0.75 * 0.75, "score_margin": 0.25 * 0.1 + 0.75 * 0.05})
    assert final_score({**final, "mean": [5.0, 1.0, 0.6]}, space, None)["score"] == 0.0
    once = final_score({**final, "evaluations": 1, "margin": []}, space, None)
    assert (once["score"], math.isnan(once["score_margin"])) == (0.625, True)
    assert final_score({}, space, None) == {}


def test_failed_final_evaluations_count_as_the_worst() -> None:
    space = RewardSpace((Objective(name="x", range=(0.0, 10.0)),))

    def margin(values: list[float]) -> float:
        return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))

    for successes, failed in (([0.9, 0.8, 0.7], 2), ([0.9], 4), ([], 3)):
        final = {
            "evaluations": len(successes),
            "failed": failed,
            "mean": [10 * np.mean(successes)] if successes else [],
            "margin": [10 * margin(successes)] if len(successes) > 1 else [],
        }
        values = [*successes, *[0.0] * failed]
        score = {"score": np.mean(values), "score_margin": margin(values)}
        assert final_score(final, space, None) == pytest.approx(score)
