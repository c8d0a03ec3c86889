"""The reproduction: pools of answers, stored outcomes, and the report."""

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from speciate.cli.train import build_config
from speciate.domain.candidate import Individual
from speciate.domain.errors import InvalidInputError, SpeciateError
from speciate.policies.bundled import checkpoints
from speciate.policies.manifest import read_manifest, weights_digest
from speciate.tournaments.statistics.estimators import best_at_k
from speciate.tournaments.statistics.significance import sign_flips

pytest.importorskip("trl", reason="needs the extra 'train'")

from experiments import causes, overtraining
from experiments.reproduction import pipeline
from experiments.reproduction.answers import AnswerPool, LocalPolicy, evolved, independent
from experiments.reproduction.arms import (
    ABLATIONS,
    ARMS,
    HYPOTHESES,
    METHOD_SEEDS,
    METHODS,
    PLANS,
    SAMPLING,
    SEEDS,
    TaskPlan,
)
from experiments.reproduction.evidence import KS, MODES, Evidence, TargetHits, hits_of, outcome_of
from experiments.reproduction.methods import write_methods
from experiments.reproduction.pipeline import arms_of, ask_by_sampling, command_of, make_all
from experiments.reproduction.report import RESULTS_BEGIN, RESULTS_END, p_text, write_report
from speciate.training.tasks import GENERATED, Split

TASK = GENERATED["programs"]
PROBLEMS = list(TASK.problems(Split.TRAIN, 4, start=5000))


@pytest.fixture(scope="module")
def base():
    return LocalPolicy(checkpoints()["programs-base"])


@pytest.mark.parametrize("name", ["programs-base", "programs-vpo"])
def test_a_pool_has_the_requested_number_of_answers(name):
    policy = LocalPolicy(checkpoints()[name])
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
    (pool,) = evolved(base, [base], TASK, PROBLEMS, 50, seed=3)
    assert pool.rewards.shape == (4, 50, 8)
    scratch, changed = pool.rewards[:, :30].mean(), pool.rewards[:, 30:].mean()
    assert changed > scratch + 0.05


def test_all_mutators_start_from_the_same_answers(base):
    other = LocalPolicy(checkpoints()["programs-vpo"])
    both = evolved(base, [base, other], TASK, PROBLEMS, 50, seed=3)
    alone = [evolved(base, [mutator], TASK, PROBLEMS, 50, seed=3)[0] for mutator in (base, other)]
    for pool, same in zip(both, alone, strict=True):
        assert (pool.rewards == same.rewards).all()
        assert (pool.tokens == same.tokens).all()
        assert (pool.repeated == same.repeated).all()
    assert (both[0].rewards[:, :30] == both[1].rewards[:, :30]).all()
    assert (both[0].rewards != both[1].rewards).any()


def test_a_prompt_for_a_change_contains_the_parent(base):
    parent = Individual(1, TASK.demonstrate(PROBLEMS[0], np.random.default_rng(0)), (1.0,) * 4 + (0.0,) * 4)
    (given,) = base.answers([(PROBLEMS[0], parent)], 8, [5])
    (scratch,) = base.answers([(PROBLEMS[0], None)], 8, [5])
    assert {one.candidate for one in given} != {one.candidate for one in scratch}


def test_evaluation_does_not_load_torch():
    code = "import sys, experiments.reproduction.pipeline; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_hypothesis_names_arms_of_its_plan():
    for claim in HYPOTHESES:
        assert {claim.better, claim.worse} <= set(PLANS[claim.task].arms)
    assert len({arm.name for arm in ARMS}) == len(ARMS)


PLAN = TaskPlan("programs", 40, ("all_cases",), 90)
VPO, GRPO = (next(arm for arm in ARMS if arm.name == name) for name in ("vpo", "grpo"))


def pool(hits, problems=40, count=90):
    """Return a pool in which the first problems are solved by their third answer."""
    rewards = np.full((problems, count, 8), 0.5)
    rewards[:hits, 2] = 1.0
    rest = np.zeros((problems, count))
    return AnswerPool(rewards, rest.astype(np.int64) + 2, rest.astype(bool), rest + 0.5)


def outcome(arm, seed, pools, plan=PLAN):
    return outcome_of(plan, arm, seed, read_manifest(checkpoints()["programs-vpo"]), "00" * 32, pools)


def test_an_outcome_summarizes_its_answers(tmp_path):
    rng = np.random.default_rng(1)
    rewards = rng.choice([0.0, 0.5, 1.0], p=[0.1, 0.05, 0.85], size=(40, 90, 8))
    tokens = rng.integers(1, 9, size=(40, 90))
    made = AnswerPool(rewards, tokens, rng.random((40, 90)) < 0.3, rng.random((40, 90)))
    kept = outcome(VPO, 1, dict.fromkeys(MODES, made))
    hits = hits_of(PLAN, made, "all_cases")
    assert (hits == (rewards == 1).all(axis=2)).all()
    assert 0 < hits[:, :3].any(axis=1).sum() < hits.any(axis=1).sum()
    met = kept.met["independent"]
    for within in (1, 3, 30, 90):
        assert (met.within(within) == hits[:, :within].any(axis=1)).all()
    for ceiling in (3, 20, 150):
        affordable = np.cumsum(tokens, axis=1) <= ceiling
        assert (met.within_tokens(ceiling) == (hits & affordable).any(axis=1)).all()
    assert met.hits == tuple(hits.sum(axis=1))
    assert kept.measured.best[KS.index(10)] == pytest.approx(best_at_k(rewards.mean(axis=2), 10).mean(), abs=1e-6)
    evidence = Evidence(tmp_path)
    evidence.keep(PLAN, VPO, kept)
    assert evidence.read(PLAN, VPO, 1) == kept
    assert evidence.read(PLAN, VPO, 2) is None
    with pytest.raises(InvalidInputError, match="about other problems"):
        evidence.read(TaskPlan("programs", 41, ("all_cases",), 90), VPO, 1)
    evidence.path(PLAN, VPO, 1).write_text("{}")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        evidence.read(PLAN, VPO, 1)


def test_targets_are_stored_consecutively():
    plan = TaskPlan("maze", 3, ("all_gold", "all_diamonds"), 30)
    rewards = np.full((3, 90, 4), 0.5)
    rewards[0, 4, 1] = rewards[2, 5, 2] = 1.0
    made = AnswerPool(rewards, np.full((3, 90), 2), np.zeros((3, 90), bool), np.ones((3, 90)))
    met = outcome(VPO, 0, dict.fromkeys(MODES, made), plan).met["evolved"]
    assert met.first == (4, -1, -1, -1, -1, 5)
    assert met.cost == (10, -1, -1, -1, -1, 12)


def test_trained_arms_are_evaluated_once(tmp_path):
    plan = TaskPlan("programs", 3, ("all_cases",), 90, arms=("base", "vpo"))
    for name in plan.arms:
        (tmp_path / f"programs-{name}-0").symlink_to(checkpoints()[f"programs-{name}"])
    evidence, works = Evidence(tmp_path / "evidence"), [(plan, arm, 0) for arm in arms_of(plan)]
    make_all(tmp_path, evidence, works, 2, Console(quiet=True))
    written = {path.name: path.stat().st_mtime_ns for path in evidence.folder.iterdir()}
    assert set(written) == {"programs-base-0.json", "programs-vpo-0.json"}
    base, vpo = (evidence.read(plan, arm, 0) for arm in (ARMS[0], VPO))
    assert base.met["evolved"] == base.met["base_mutates"]
    assert (base.writer, base.steps) == (None, 700)
    assert vpo.met["evolved"] != vpo.met["base_mutates"]
    assert all(len(met.first) == 3 for met in vpo.met.values())
    # On another machine without the checkpoints, arms with stored outcomes are not trained.
    make_all(tmp_path / "elsewhere", evidence, works, 2, Console(quiet=True))
    assert {path.name: path.stat().st_mtime_ns for path in evidence.folder.iterdir()} == written
    assert not list((tmp_path / "elsewhere").iterdir())


def test_arms_are_sampled_in_other_ways(tmp_path):
    plan = TaskPlan("maze", 2, ("all_gold", "all_diamonds"), 15)
    for name in ("vpo", "grpo"):
        (tmp_path / f"maze-{name}-0").symlink_to(checkpoints()[f"maze-{name}"])
    evidence = Evidence(tmp_path / "evidence")
    for arm in (VPO, GRPO):
        ask_by_sampling(tmp_path, evidence, plan, arm, 0)
    vpo, grpo = (evidence.read_controls(plan, arm, 0) for arm in (VPO, GRPO))
    ways = [way.name for way in SAMPLING]
    assert [list(one.met) for one in (vpo, grpo)] == [ways, ways]
    # As trained is the trained format, at temperature 1.
    assert vpo.met["t1"] == vpo.met["sets"] != vpo.met["single"]
    assert grpo.met["t1"] == grpo.met["single"] != grpo.met["sets"]
    assert grpo.best["t0.7"] > grpo.best["t2.0"]
    assert evidence.read(plan, VPO, 0) is None


def test_methods_are_compared_by_training_run(tmp_path):
    evidence, plan = Evidence(tmp_path / "evidence"), METHODS["programs"]
    for i, seed in enumerate(METHOD_SEEDS["programs"]):
        for arm in arms_of(plan):
            met = {"vpo": 240, "grpo": 200 + 6 * i, "multi_rlvr": 240 + 3 * (i % 2) - 1}.get(arm.name, 100)
            first = tuple([0] * met + [-1] * (plan.problems - met))
            hits = TargetHits(first=first, cost=first, hits=tuple(one + 1 for one in first))
            made = outcome(arm, seed, dict.fromkeys(MODES, pool(5))).model_copy(
                update={"problems": plan.problems, "seed": seed, "met": dict.fromkeys(MODES, hits)}
            )
            evidence.keep(plan, arm, made)
    write_methods(evidence, tmp_path / "methods.md")
    text = (tmp_path / "methods.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.startswith("| programs |")]
    # Differences of 40, 34, … −2 problems: only the sign pattern that turns the last one is as extreme, and mirrored.
    assert rows[0][2] == "VPO unlocks more than GRPO"
    assert rows[0][5:8] == ["7 of 8", "0.016", "0.031"]
    assert rows[0][-2] == "holds"
    assert rows[1][-2] == "**does not hold**"
    assert "Missing: `maze`" in text


def test_a_failed_training_is_reported_with_its_log(tmp_path):
    plan = TaskPlan("programs", 3, ("all_cases",), 90, arms=("vpo",))
    (tmp_path / "programs-base-0").symlink_to(checkpoints()["maze-base"])
    (tmp_path / "programs-vpo-0").write_text("in the way")
    works = [(plan, VPO, 0)]
    with pytest.raises(SpeciateError, match=r"training programs-vpo-0 failed .* see .*programs-vpo-0\.log"):
        make_all(tmp_path, Evidence(tmp_path / "evidence"), works, 1, Console(quiet=True))


def test_a_variant_is_trained_with_its_own_settings():
    made = {arm.name: [] for arm in arms_of(ABLATIONS)}
    for arm in arms_of(ABLATIONS):
        command = command_of(Path("out"), ABLATIONS, arm, 1)
        settings = [value for flag, value in pairwise(command) if flag == "--set"]
        method = command[command.index("--method") + 1]
        config = build_config(method, "programs", 1, None, settings)
        made[arm.name] = (config.method, config.group, config.estimator)
    assert len({str(choices) for choices in made.values()}) == len(made)
    assert made["vmk_kappa_2"][2].kappa == 2
    assert made["vmk_n_24"][:2] == ("vector_max_at_k", 24)


def test_every_arm_of_the_comparison_of_methods_can_be_trained():
    given = pipeline._parser().parse_args(["--methods"])
    works = pipeline._method_work(given)
    assert {seed for _, _, seed in works} == {seed for seeds in METHOD_SEEDS.values() for seed in seeds}
    for plan, arm, seed in works:
        command = command_of(Path("out"), plan, arm, seed)
        settings = [value for flag, value in pairwise(command) if flag == "--set"]
        if arm.method != "base":
            assert build_config(arm.method, plan.task, seed, None, settings).method == arm.method


def test_the_report_counts_met_targets_and_keeps_text_outside_the_markers(tmp_path):
    evidence = Evidence(tmp_path / "evidence")
    for seed in (0, 1, 2):
        for arm in arms_of(PLAN):
            made = pool({"vpo": 30, "grpo": 5}.get(arm.name, 10))
            evidence.keep(PLAN, arm, outcome(arm, seed, dict.fromkeys(MODES, made)).model_copy(update={"seed": seed}))
    report = tmp_path / "report.md"
    report.write_text(f"# Conclusion\n\n{RESULTS_BEGIN}\nold results\n{RESULTS_END}\n\n## Method\n")
    write_report(evidence, report, [PLAN], (0, 1, 2))
    text = report.read_text()
    assert text.startswith(f"# Conclusion\n\n{RESULTS_BEGIN}\n")
    assert text.endswith(f"{RESULTS_END}\n\n## Method\n")
    assert "old results" not in text
    assert "Missing: task `maze`; task `programs-hard`." in text
    line = next(line for line in text.splitlines() if line.startswith("| VPO unlocks programs that GRPO does not"))
    assert "| +62.5 % |" in line
    assert "| 3 of 3 | 25 : 0, 25 : 0, 25 : 0 | holds |" in line
    assert line.endswith(": holds |")
    unlocked = next(line for line in text.splitlines() if line.startswith("| VPO | "))
    assert unlocked.split(" | ")[5:7] == ["30", "30"]
    assert (tmp_path / "report.csv").read_text().count("\nprograms,vpo,") == 3
    assert (tmp_path / "pictures" / "reproduction-programs.svg").stat().st_size > 1000


def test_the_sign_flip_test_has_one_difference_for_each_problem(tmp_path):
    plan, seeds, rng = TaskPlan("maze", 12, ("all_gold", "all_diamonds"), 30), (0, 1, 2), np.random.default_rng(2)
    evidence, rates = Evidence(tmp_path / "evidence"), {}
    for name, chance in (("vpo", 0.5), ("grpo", 0.3)):
        arm, solved = next(one for one in ARMS if one.name == name), rng.random((3, 12)) < chance
        for seed in seeds:
            # The second target repeats the first: all gold and all diamonds are collected together.
            rewards = np.where(solved[seed], 1.0, 0.5)[:, None, None] * np.ones((12, 90, 4))
            made = AnswerPool(rewards, np.full((12, 90), 2), np.zeros((12, 90), bool), np.ones((12, 90)))
            evidence.keep(plan, arm, outcome(arm, seed, dict.fromkeys(MODES, made), plan))
        rates[name] = solved.mean(axis=0)
    write_report(evidence, tmp_path / "report.md", [plan], seeds)
    lines = (tmp_path / "report.md").read_text().splitlines()
    line = next(line for line in lines if line.startswith("| VPO unlocks mazes that GRPO does not"))
    p = sign_flips([rates["vpo"] - rates["grpo"]], np.random.default_rng(0))[0].p_value
    assert 0.01 < p < 1
    assert line.split(" | ")[2] == p_text(p)


def test_the_published_report_follows_from_its_evidence(tmp_path):
    docs = Path(__file__).parents[3] / "docs"
    evidence = Evidence(docs / "evidence" / "reproduction")
    published = (docs / "evidence" / "reproduction.md").read_text("utf-8")
    report = tmp_path / "reproduction.md"
    head, _, rest = published.partition(RESULTS_BEGIN)
    report.write_text(f"{head}{RESULTS_BEGIN}{RESULTS_END}{rest.partition(RESULTS_END)[2]}", "utf-8")
    write_report(evidence, report, list(PLANS.values()), SEEDS)
    assert report.with_suffix(".csv").read_bytes() == (docs / "evidence" / "reproduction.csv").read_bytes()
    assert report.read_text("utf-8") == published, "regenerate it: docs/evidence/reproduction.md says how"


def test_the_published_comparison_of_methods_follows_from_its_evidence(tmp_path):
    docs = Path(__file__).parents[3] / "docs"
    published = (docs / "evidence" / "methods.md").read_text("utf-8")
    report = tmp_path / "methods.md"
    report.write_text(published, "utf-8")
    write_methods(Evidence(docs / "evidence" / "reproduction"), report)
    assert report.with_suffix(".csv").read_bytes() == (docs / "evidence" / "methods.csv").read_bytes()
    assert report.read_text("utf-8") == published, "regenerate it: docs/evidence/methods.md says how"


def test_the_bundled_policies_are_those_of_the_evidence():
    evidence = Evidence(Path(__file__).parents[3] / "docs" / "evidence" / "reproduction")
    compared = set()
    for plan in PLANS.values():
        for arm in arms_of(plan):
            bundled = checkpoints().get(f"{plan.task}-{arm.name.replace('_', '-')}")
            found = evidence.read(plan, arm, 0)
            if bundled is not None and found is not None:
                assert weights_digest(bundled) == found.weights
                compared.add(bundled)
    assert compared == {folder for folder in checkpoints().values() if not read_manifest(folder).is_mutator}


@pytest.mark.parametrize("experiment", [causes, overtraining])
def test_published_predictions_follow_from_their_outcomes(tmp_path, experiment):
    docs, name = Path(__file__).parents[3] / "docs", experiment.__name__.rpartition(".")[2]
    published = (docs / "evidence" / f"{name}.md").read_text("utf-8")
    report = tmp_path / f"{name}.md"
    report.write_text(published, "utf-8")
    outcomes = str(docs / "evidence" / "reproduction")
    experiment.main(["--only-report", "--evidence", outcomes, "--report", str(report)])
    assert report.read_text("utf-8") == published, f"regenerate it: python -m experiments.{name} --only-report"


def test_a_method_that_has_begun_leaves_the_verdict_on_a_complete_one(tmp_path):
    for path in (Path(__file__).parents[3] / "docs/evidence/reproduction").glob("programs-*.json"):
        if "vpo_unsolved" not in path.name and "max_at_k_24_unsolved" not in path.name:
            shutil.copy(path, tmp_path)
    begun = json.loads((tmp_path / "programs-vpo-0.json").read_text("utf-8")) | {"arm": "vpo_unsolved"}
    (tmp_path / "programs-vpo_unsolved-0.json").write_text(json.dumps(begun), "utf-8")
    assert "| 7 of 8 |" in "\n".join(overtraining.parts(Evidence(tmp_path)))
