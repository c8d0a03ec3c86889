"""The reproduction: pools of answers count what they should, and the report says what the pools hold."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from speciate.cli.train import config_of
from speciate.domain.candidate import Member
from speciate.policies.bundled import checkpoints
from speciate.training.arms import ABLATIONS, ARMS, CLAIMS, PLANS, Plan
from speciate.training.pools import Asked, Pool, evolved, independent
from speciate.training.report import DECLARED, write_report
from speciate.training.reproduction import answers, arms_of, command_of, read_answers
from speciate.training.tasks import GROWN, Split

TASK = GROWN["programs"]
PROBLEMS = list(TASK.problems(Split.TRAIN, 4, start=5000))


@pytest.fixture(scope="module")
def base():
    return Asked(checkpoints()["programs-base"])


@pytest.mark.parametrize("name", ["programs-base", "programs-vpo"])
def test_a_pool_holds_as_many_answers_as_were_paid_for(name):
    policy = Asked(checkpoints()[name])
    pool = independent(policy, TASK, PROBLEMS, 20, seed=3)
    assert pool.rewards.shape == (4, 20, 8)
    assert pool.tokens.min() >= 0
    assert pool.tokens.sum() > 4 * 20
    again = independent(policy, TASK, PROBLEMS, 20, seed=3)
    assert (again.rewards == pool.rewards).all()
    other = independent(policy, TASK, PROBLEMS, 20, seed=4)
    assert (other.rewards != pool.rewards).any()


def test_an_answer_does_not_depend_on_the_problems_beside_it(base):
    alone = independent(base, TASK, PROBLEMS[:1], 12, seed=3)
    together = independent(base, TASK, PROBLEMS, 12, seed=3)
    assert (alone.rewards[0] == together.rewards[0]).all()


def test_evolution_begins_like_independent_answers_and_then_changes_parents(base):
    pool = evolved(base, base, TASK, PROBLEMS, 50, seed=3)
    assert pool.rewards.shape == (4, 50, 8)
    scratch, changed = pool.rewards[:, :30].mean(), pool.rewards[:, 30:].mean()
    assert changed > scratch + 0.05


def test_a_change_is_asked_with_the_parent(base):
    parent = Member(1, TASK.demonstrate(PROBLEMS[0], np.random.default_rng(0)), (1.0,) * 4 + (0.0,) * 4)
    (given,) = base.answers([(PROBLEMS[0], parent)], 8, [5])
    (scratch,) = base.answers([(PROBLEMS[0], None)], 8, [5])
    assert {one.candidate for one in given} != {one.candidate for one in scratch}


def test_every_claim_is_about_arms_of_its_plan():
    for claim in CLAIMS:
        assert {claim.better, claim.worse} <= set(PLANS[claim.task].arms)
    assert len({arm.name for arm in ARMS}) == len(ARMS)


def pool(hits, problems=40, count=90):
    """Return a pool in which the first problems are solved by their first answer."""
    rewards = np.full((problems, count, 8), 0.5)
    rewards[:hits, 0] = 1.0
    rest = np.zeros((problems, count))
    return Pool(rewards, rest.astype(np.int64) + 2, rest.astype(bool), rest + 0.5)


def test_a_variant_is_trained_with_its_own_choices():
    made = {arm.name: [] for arm in arms_of(ABLATIONS)}
    for arm in arms_of(ABLATIONS):
        command = command_of(Path("out"), ABLATIONS, arm, 1)
        settings = [value for flag, value in pairwise(command) if flag == "--set"]
        method = command[command.index("--method") + 1]
        config = config_of(method, "programs", 1, None, settings, paper=False)
        made[arm.name] = (config.method, config.group, config.estimator)
    assert len({str(choices) for choices in made.values()}) == len(made)
    assert made["vmk_kappa_2"][2].kappa == 2
    assert made["vmk_n_24"][:2] == ("vector_max_at_k", 24)


def test_the_report_counts_what_the_pools_hold_and_keeps_what_was_declared(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra 'train'")
    plan = Plan("programs", 40, ("all_cases",), 90)
    (tmp_path / "answers").mkdir()
    for seed in (0, 1, 2):
        for arm in arms_of(plan):
            for mode in ("independent", "evolved", "base_mutates"):
                hits = {"vpo": 30, "grpo": 5}.get(arm.name, 10)
                made = pool(hits)
                path = answers(tmp_path, plan, arm, seed, mode)
                np.savez(path, **{name: getattr(made, name) for name in Pool.__slots__})
                assert (read_answers(path).rewards == made.rewards).all()
    report = tmp_path / "report.md"
    report.write_text(f"# Declared\n\nword for word\n\n{DECLARED}\nold results\n")
    write_report(tmp_path, report, [plan], (0, 1, 2))
    text = report.read_text()
    assert text.startswith(f"# Declared\n\nword for word\n\n{DECLARED}\n")
    assert "old results" not in text
    assert "Missing: task `maze`; task `programs-hard`." in text
    line = next(line for line in text.splitlines() if line.startswith("| VPO unlocks programs that GRPO does not"))
    assert "| 3 | 75 | 0 | +62.5 % |" in line
    assert "25 : 0, 25 : 0, 25 : 0" in line
    assert line.endswith("| holds |")
    unlocked = next(line for line in text.splitlines() if line.startswith("| VPO | 30"))
    assert unlocked.startswith("| VPO | 30 (30, 30, 30) | 30 (30, 30, 30) |")
    assert (tmp_path / "pictures" / "reproduction-programs.svg").stat().st_size > 1000
