"""The trainer: overrides of TRL, learning policies, and resumed runs."""

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from speciate.cli.app import app
from speciate.prompts.parse import Answer

pytest.importorskip("trl", reason="needs the extra 'train'")
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SPECIATE = str(Path(sys.executable).with_name("speciate"))
SMALL = ["--set", "prompts=8", "--set", "problems=40", "--set", "save_every=2"]


def train(*arguments, cwd, check=True):
    """Run the command in this process: importing torch takes longer than most of these runs."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, ["train", *arguments])
    assert not check or done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A base of the programs task after a short training."""
    import torch

    from speciate.training.base import BaseConfig
    from speciate.training.recipe import ensure_base
    from speciate.training.tasks import GENERATED

    threads = torch.get_num_threads()
    folder = tmp_path_factory.mktemp("base") / "programs-base"
    losses = []
    config = BaseConfig(problems=600, steps=120, batch=64, learning_rate=3e-3)
    ensure_base(GENERATED["programs"], config, folder, lambda step, steps, seen: losses.append(seen["loss"]))
    torch.set_num_threads(threads)
    assert np.mean(losses[-10:]) < 0.6 * losses[0]
    return folder


def held_out(folder, m):
    """Return the mean reward of 15 answers, m per rollout, to each of 60 held-out problems."""
    from experiments.reproduction.answers import LocalPolicy, independent
    from speciate.training.tasks import GENERATED, Split

    problems = list(GENERATED["programs"].problems(Split.TEST, 60))
    policy = LocalPolicy(folder, answers_per_rollout=m)
    return independent(policy, GENERATED["programs"], problems, 15, seed=0).rewards.mean()


def metrics(folder):
    return json.loads((folder / "manifest.json").read_text())["metrics"]


def test_trl_has_the_private_methods_that_are_overridden():
    from trl import GRPOTrainer

    from speciate.training.trainer import VectorTrainer

    overridden = {name for name in vars(VectorTrainer) if hasattr(GRPOTrainer, name) and not name.startswith("__")}
    for name in overridden - {"create_model_card"}:
        theirs = inspect.signature(getattr(GRPOTrainer, name)).parameters
        ours = inspect.signature(getattr(VectorTrainer, name)).parameters
        named = [one for one, parameter in ours.items() if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
        handed_on = len(named) < len(ours)
        known = tuple(theirs)[: len(named)] if handed_on else tuple(theirs)
        assert known == tuple(named), f"TRL changed {name}: read what it does now"


def test_rewards_are_diagnosed_without_a_training(base, tmp_path):
    said = train("--task", "programs", "--method", "vpo", "--base", str(base), "--diagnose-rewards", "--json",
                 cwd=tmp_path)  # fmt: skip
    diagnosis = json.loads(said.stdout)
    assert diagnosis["problems"] > 30
    assert diagnosis["trade_offs"] > 0.7 * diagnosis["problems"], "short answers pass different cases"
    assert diagnosis["gain"] > 0.02
    assert list(tmp_path.iterdir()) == []


# The steps after which the mean rewards of three seeds each had risen by 0.09 or more.
@pytest.mark.parametrize(("method", "steps"), [("grpo", 20), ("vpo", 45)])
def test_a_policy_learns(base, tmp_path, method, steps):
    settings = ["--set", "prompts=16", "--set", "problems=200", "--set", "learning_rate=0.001", "--set", "group=8"]
    train("--task", "programs", "--method", method, "--base", str(base), "--out", "policy", *settings,
          "--steps", str(steps), cwd=tmp_path)  # fmt: skip
    before, after = (held_out(folder, 3 if method == "vpo" else 1) for folder in (base, tmp_path / "policy"))
    assert after > before + 0.04
    assert {path.name for path in (tmp_path / "policy").iterdir()} >= {"model.safetensors", "tokenizer.json"}
    # Training and serving limit answers equally: otherwise a policy learns longer ones.
    from speciate.domain.policy import PolicyRole
    from speciate.policies.manifest import policy_of
    from speciate.training.arguments import trl_arguments
    from speciate.training.config import TrainConfig
    from speciate.training.tasks import GENERATED

    trained = trl_arguments(TrainConfig.tiny(method, "programs"), GENERATED["programs"], tmp_path).max_completion_length
    assert trained == policy_of(tmp_path / "policy", "served").tokens_for(PolicyRole.PROPOSE)


def test_a_pass_takes_the_groups_that_half_of_the_memory_holds(monkeypatch, tmp_path):
    from speciate.training.arguments import trl_arguments
    from speciate.training.config import TrainConfig
    from speciate.training.tasks import GENERATED

    config, task = TrainConfig.tiny("grpo", "programs"), GENERATED["programs"]
    longest = trl_arguments(config, task, tmp_path).max_completion_length

    def at_once(megabytes: int) -> int:
        monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": megabytes << 8, "SC_PAGE_SIZE": 4096}.get)
        args = trl_arguments(config, task, tmp_path, shared=True, token_bytes=(1 << 20) // (longest * config.group))
        assert args.per_device_train_batch_size * args.gradient_accumulation_steps == config.batch
        return args.per_device_train_batch_size // config.group

    assert config.prompts % 4 == 0
    assert [at_once(n) for n in (1, 8, 11, 4 * config.prompts)] == [1, 4, 4, config.prompts]


def test_a_mutation_has_the_same_length_limit_as_in_serving():
    from types import SimpleNamespace

    from speciate.training.rollout_rules import Rollout
    from speciate.training.trainer import VectorTrainer

    task, args = SimpleNamespace(max_tokens=3), SimpleNamespace(max_completion_length=12)
    trainer = SimpleNamespace(_close=9, task=task, args=args, processing_class=None)
    for answers, ends in {
        1: {(1, 2, 1): 3, (1, 2, 1, 2, 1, 2): 4},
        3: {(1, 9, 2, 9, 3): 5, (1, 9, 2, 9, 3, 9, 4): 6},
    }.items():
        row = {"policy": SimpleNamespace(answers_per_rollout=answers)}
        rule = VectorTrainer._rule(trainer, row)
        limit = VectorTrainer._limit(trainer, row, rule)
        for ids, size in ends.items():
            rollout = Rollout()
            assert not rollout.extend(ids[:limit], VectorTrainer._rule(trainer, row))
            assert rollout.ids == [*ids[:size]]


def test_solved_problems_are_not_drawn_again():
    from speciate.training.tasks import GENERATED, Split
    from speciate.training.trainer import VectorTrainer

    problems = list(GENERATED["maze"].problems(Split.TRAIN, 4))  # two targets each
    drawn = {}
    for gated in (True, False):
        trainer = SimpleNamespace(problems=problems, config=SimpleNamespace(unsolved_only=gated),
                                  rng=np.random.default_rng(0), _met={0: 0b11, 1: 0b01, 2: 0b11})  # fmt: skip
        trainer._solved = partial(VectorTrainer._solved, trainer)
        drawn[gated] = {VectorTrainer._draw_problem(trainer) for _ in range(60)}
        trainer._met = dict.fromkeys(range(4), 0b11)
        assert 0 <= VectorTrainer._draw_problem(trainer) < 4, "all are solved"
    assert drawn == {True: {1, 3}, False: {0, 1, 2, 3}}


def test_answers_to_solved_problems_are_not_changed():
    from speciate.training.rollouts import TrainingPopulations
    from speciate.training.tasks import GENERATED, Split
    from speciate.training.trainer import VectorTrainer

    problems = list(GENERATED["maze"].problems(Split.TRAIN, 2))
    trainer = SimpleNamespace(problems=problems, populations=TrainingPopulations(9), _met={})
    trainer._solved = partial(VectorTrainer._solved, trainer)
    gold, diamond = (1.0, 1.0, 0.2, 1.0), (1.0, 0.2, 1.0, 1.0)
    for number, vectors in enumerate([[gold, diamond], [gold]]):
        for vector in vectors:
            trainer.populations.add(number, "path", vector)
            VectorTrainer._note_met(trainer, number, vector)
    assert {trainer.populations.draw(np.random.default_rng(seed))[0] for seed in range(9)} == {1}


def test_a_killed_run_resumes_to_the_same_weights(base, tmp_path):
    gate = ("--set", "unsolved_only=true")
    arguments = ["--task", "programs", "--method", "vpo", "--base", str(base), "--steps", "5", *SMALL, *gate]
    train(*arguments, "--out", "whole", cwd=tmp_path)
    process = subprocess.Popen([SPECIATE, "train", *arguments, "--out", "cut"], cwd=tmp_path, stdout=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("cut/checkpoints/checkpoint-*/speciate_state.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "cut" / "manifest.json").exists()
    refused = train(*arguments, "--out", "cut", cwd=tmp_path, check=False)
    assert refused.exit_code
    assert "--resume" in refused.stderr
    train(*arguments, "--out", "cut", "--resume", cwd=tmp_path)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]
    again = train(*arguments, "--out", "cut", cwd=tmp_path)  # complete: nothing is done again
    assert "5/5" not in again.stderr
    assert "cut holds this policy already: nothing was trained." in again.stdout


def test_a_run_stopped_between_updates_of_a_batch_resumes_to_the_same_weights(base, tmp_path, monkeypatch):
    from dataclasses import replace

    from speciate.training.config import TrainConfig
    from speciate.training.recipe import train_policy
    from speciate.training.tasks import GENERATED
    from speciate.training.trainer import VectorTrainer

    tiny = TrainConfig.tiny("grpo", "programs")
    config = replace(tiny, steps=3, prompts=8, problems=40, updates=2, micro_batch=32, save_every=1)
    compute_loss = VectorTrainer._compute_loss

    def stop(self, model, inputs):
        if self.state.global_step == 3:  # the first of the second batch's two updates is done
            raise KeyboardInterrupt
        return compute_loss(self, model, inputs)

    train_policy(GENERATED["programs"], config, base, tmp_path / "whole")
    monkeypatch.setattr(VectorTrainer, "_compute_loss", stop)
    with pytest.raises(KeyboardInterrupt):
        train_policy(GENERATED["programs"], config, base, tmp_path / "cut")
    monkeypatch.undo()
    kept = {path.name for path in (tmp_path / "cut" / "checkpoints").glob("checkpoint-*")}
    assert kept == {"checkpoint-2"}
    train_policy(GENERATED["programs"], config, base, tmp_path / "cut", resume=True)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_an_incomplete_checkpoint_is_skipped(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from trl import GRPOTrainer

    from speciate.training.rollouts import TrainingPopulations
    from speciate.training.run_files import last_checkpoint
    from speciate.training.trainer import VectorTrainer

    def killed(path, text, *_):
        path.write_bytes(text[:5].encode())
        raise KeyboardInterrupt

    trainer = VectorTrainer.__new__(VectorTrainer)  # without a model, which is not needed here
    trainer.args = SimpleNamespace(process_index=0, world_size=1)
    trainer.state = SimpleNamespace(global_step=2)
    trainer.rng, trainer.populations, trainer._met = np.random.default_rng(0), TrainingPopulations(9), {}
    monkeypatch.setattr(VectorTrainer, "_get_output_dir", lambda *_, **__: tmp_path / "checkpoints")
    (tmp_path / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    monkeypatch.setattr(GRPOTrainer, "_save_checkpoint", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            trainer._save_checkpoint(None, None)
    assert last_checkpoint(tmp_path) is None
    trainer._save_checkpoint(None, None)
    assert last_checkpoint(tmp_path).name == "checkpoint-2"


def test_a_checkpoint_of_two_processes_needs_both(tmp_path):
    from speciate.domain.errors import ConflictError
    from speciate.training.run_files import last_checkpoint, read_state, state_file

    checkpoint = tmp_path / "checkpoints" / "checkpoint-2"
    checkpoint.mkdir(parents=True)
    state_file(checkpoint, 0).write_text(json.dumps({"rng": "first", "processes": 2}))
    assert last_checkpoint(tmp_path) is None
    state_file(checkpoint, 1).write_text(json.dumps({"rng": "second", "processes": 2}))
    assert last_checkpoint(tmp_path) == checkpoint
    assert [read_state(checkpoint, process, 2)["rng"] for process in (0, 1)] == ["first", "second"]
    with pytest.raises(ConflictError, match="training with 2 process"):
        read_state(checkpoint, 0, 1)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_run_killed_after_its_last_update_makes_no_further_one(base, tmp_path, monkeypatch, rank):
    from dataclasses import replace

    from speciate.policies.manifest import read_manifest, weights_digest
    from speciate.training import recipe
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import train_policy
    from speciate.training.tasks import GENERATED

    def stop(*_):
        raise KeyboardInterrupt

    config = replace(TrainConfig.tiny("grpo", "programs"), steps=2, prompts=2, problems=40, lora_rank=rank)
    train_policy(GENERATED["programs"], config, base, tmp_path / "whole")
    monkeypatch.setattr(recipe, "save_model", stop)
    with pytest.raises(KeyboardInterrupt):
        train_policy(GENERATED["programs"], config, base, tmp_path / "cut")
    monkeypatch.undo()
    train_policy(GENERATED["programs"], config, base, tmp_path / "cut", resume=True)
    whole, cut = (tmp_path / name for name in ("whole", "cut"))
    assert weights_digest(whole) == weights_digest(cut)
    assert [one["step"] for one in read_manifest(cut).metrics] == [1, 2]


def test_a_run_resumes_with_its_own_problems_only(base, tmp_path, monkeypatch):
    from dataclasses import replace

    from speciate.domain.errors import ConflictError
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import train_policy
    from speciate.training.tasks import GENERATED
    from speciate.training.trainer import VectorTrainer

    class Other:
        """The same task with other files."""

        def __getattr__(self, name):
            return getattr(GENERATED["programs"], name)

        def problems(self, split, count, *, start=0):
            return GENERATED["programs"].problems(split, count, start=start + count)

    def stop(*_):
        raise KeyboardInterrupt

    config = replace(TrainConfig.tiny("grpo", "programs"), steps=1, prompts=8, problems=40)
    monkeypatch.setattr(VectorTrainer, "_compute_loss", stop)
    with pytest.raises(KeyboardInterrupt):
        train_policy(GENERATED["programs"], config, base, tmp_path / "cut")
    monkeypatch.undo()
    with pytest.raises(ConflictError, match="holds a run with other problems"):
        train_policy(Other(), config, base, tmp_path / "cut", resume=True)
    train_policy(GENERATED["programs"], config, base, tmp_path / "cut", resume=True)
    with pytest.raises(ConflictError, match="holds a run with other problems"):
        train_policy(Other(), config, base, tmp_path / "cut")


def test_a_folder_with_another_run_is_refused_with_the_values_that_differ(tmp_path):
    from dataclasses import replace

    from speciate.domain.errors import ConflictError
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import as_json, is_complete
    from speciate.training.run_files import write_identity

    config = TrainConfig.tiny("vpo", "maze")
    other = replace(config, steps=13, micro_batch=8, estimator=replace(config.estimator, kappa=3))
    write_identity({"task": "maze", "config": as_json(config), "base_digest": "a"}, tmp_path)
    identity = {"task": "maze", "config": as_json(other), "base_digest": "b"}
    words = r"a run with another base and steps = 150, not 13 and estimator.kappa = None, not 3\."
    with pytest.raises(ConflictError, match=words):
        is_complete(identity, tmp_path, resume=True)
    del identity["base_digest"]  # as before the base is read
    assert not is_complete(identity | {"config": as_json(config)}, tmp_path, resume=True)
    longer = as_json(replace(config, max_prompt_tokens=9000))
    assert not is_complete(identity | {"config": longer}, tmp_path, resume=True)


def test_a_prompt_beyond_the_models_context_is_refused(tmp_path):
    from speciate.domain.errors import InvalidInputError
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import train_policy
    from speciate.training.tasks.python import PythonTask
    from tests.unit.inference.checkpoints import write_bytes

    base = write_bytes(tmp_path / "bytes", length=200)
    config = TrainConfig("vpo", steps=1, prompts=2, group=4, problems=4, mutation_share=0.0, kl=0.0, max_tokens=24)
    with pytest.raises(InvalidInputError, match="the model reads 200"):
        train_policy(PythonTask(name="python-easy", most_steps=2), config, base, tmp_path / "policy")
    assert not (tmp_path / "policy" / "checkpoints").exists()  # the remedy makes it another run


def test_a_run_says_how_large_it_is_what_it_teaches_and_how_it_goes_on(base, tmp_path, monkeypatch):
    from speciate.training.tasks.programs import ProgramsTask
    from speciate.training.trainer import VectorTrainer

    arguments = ["--task", "programs", "--method", "vpo", "--base", str(base), "--out", "flat", "--steps", "2", *SMALL]
    problems, compute_loss = ProgramsTask.problems, VectorTrainer._compute_loss

    def stop(self, model, inputs):
        if self.state.global_step:
            raise KeyboardInterrupt
        return compute_loss(self, model, inputs)

    monkeypatch.setattr(ProgramsTask, "problems", lambda self, split, count, start=0: problems(self, split, 12))
    monkeypatch.setattr(ProgramsTask, "answers", 1)
    monkeypatch.setattr(ProgramsTask, "score", lambda _, batch: [[(0.0,) * 8 for _ in texts] for _, texts in batch])
    with monkeypatch.context() as patch:
        patch.setattr(VectorTrainer, "_compute_loss", stop)
        cut = train(*arguments, cwd=tmp_path, check=False)
    assert cut.exit_code == 130
    assert "12 problems; 2 updates of 64 rollouts, each of at most 6 tokens" in cut.stderr
    assert "task programs has one answer per rollout: vpo trains no sets" in cut.stderr
    assert "interrupted after step 1. Repeat the command with --resume." in cut.stderr
    done = train(*arguments, "--resume", cwd=tmp_path)
    assert "2/2" in done.stderr
    assert done.stderr.count("warning: 100.0% of the groups taught nothing") == 2, "at the first update and at the end"
    assert json.loads((tmp_path / "flat" / "manifest.json").read_text())["problems"] == 12


def test_the_time_left_is_that_of_the_updates_alone(monkeypatch, capsys):
    from types import SimpleNamespace

    from speciate.cli.train import _training_progress

    moments = iter([224.0, 300.0, 322.0])  # loading a model took minutes
    monkeypatch.setattr("speciate.cli.train.time", SimpleNamespace(monotonic=moments.__next__))
    with _training_progress("maze, base") as show:
        for step in (1, 41, 50):
            show(step, 110, {"loss": 0.5})
    assert capsys.readouterr().err.splitlines() == [
        "maze, base: 1/110  loss 0.500",
        "maze, base: 50/110, 2 s each, about 0:02:00 left  loss 0.500",
    ]


def test_recipe_values_are_explained(tmp_path):
    page = (Path(__file__).parents[3] / "docs/howto/train-on-your-data.md").read_text()
    command = page.partition("` explains every recipe value")[0].rpartition("`speciate train ")[2]
    done = train(*command.split(), cwd=tmp_path)
    assert "estimator.kappa" in done.stdout
    assert "Updates per batch of rollouts" in done.stdout


def test_a_mutator_learns_from_changes(base, tmp_path):
    from speciate.policies.manifest import policy_of, read_manifest

    arguments = ["--task", "programs", "--method", "vector_max_at_k", "--mutator", "--base", str(base)]
    train(*arguments, "--steps", "3", *SMALL, cwd=tmp_path)
    folder = tmp_path / "programs-mutator-0"
    manifest = read_manifest(folder)
    assert manifest.is_mutator
    assert not read_manifest(base).is_mutator
    assert [manifest.config[name] for name in ("group", "mutation_share", "mutation_kl")] == [24, 0.9, 0.1]
    assert all("mutation_mean" in entry for entry in manifest.metrics[1:])  # the first batch has no parents yet
    assert policy_of(folder, "mine").description.startswith("Trained to change answers to task programs")
    refused = train("--task", "programs", "--method", "base", "--mutator", cwd=tmp_path, check=False)
    assert refused.exit_code == 4
    assert "--method vector_max_at_k" in refused.stderr


def test_a_mutator_for_a_language_model_has_whole_groups_in_a_pass():
    from speciate.cli.train import build_config

    config = build_config("vector_max_at_k", "python", 0, None, [], mutator=True)
    assert (config.group, config.micro_batch) == (24, 24)


def test_gradients_do_not_depend_on_how_a_batch_is_split(base, tmp_path):
    for name, micro in (("whole", 0), ("parts", 16)):
        train("--task", "programs", "--method", "grpo", "--base", str(base), "--steps", "1", "--out", name, *SMALL,
              "--set", f"micro_batch={micro}", cwd=tmp_path)  # fmt: skip
    from safetensors.numpy import load_file

    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    start = load_file(base / "model.safetensors")
    moved = max(np.abs(whole[k] - start[k]).max() for k in start)
    assert max(np.abs(whole[k] - parts[k]).max() for k in start) < 0.35 * moved


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "chess", "--method", "vpo"], "no task is called 'chess'"),
        (["--task", "programs", "--method", "ppo"], "no method is called 'ppo'"),
        (["--task", "programs", "--method", "vpo", "--set", "grupe=8"], "no such recipe value"),
        (["--task", "programs", "--method", "grpo", "--set", "method=vpo"], "Write --method vpo."),
        (["--task", "maze", "--method", "grpo", "--data", "."], "'maze' generates its problems"),
        (["--task", "programs", "--method", "vpo", "--set", "group=1"], "group = 1"),
        (["--task", "programs", "--method", "vpo", "--set", "estimator.alpha=-1"], "alpha = -1"),
        (["--task", "programs", "--method", "vpo", "--set", "micro_batch=7"], "micro_batch = 7"),
        (["--task", "programs", "--method", "vpo", "--set", "micro_batch=-8"], "micro_batch = -8"),
        (["--task", "programs", "--method", "vpo", "--set", "learning_rate=-1"], "learning_rate = -1"),
        (["--task", "programs", "--method", "vpo", "--set", "temperature=0"], "temperature = 0"),
        (["--task", "programs", "--method", "vpo", "--set", "kl=nan"], "kl = nan"),
        (["--task", "programs", "--method", "vpo", "--set", "mutation_kl=-1"], "mutation_kl = -1"),
        (["--task", "programs", "--method", "vpo", "--seed", "4294967296"], "equal to 4294967295"),
        (["--task", "programs", "--method", "vpo", "--set", "micro_batch=8", "--set", "updates=16"], "updates = 16"),
        (["--task", "programs", "--method", "vpo", "--base", "nowhere"], "nowhere"),
        # Reported before a base is trained, which takes minutes.
        (["--task", "programs", "--method", "max_at_k", "--set", "estimator.kappa=99"], "kappa = 99"),
        (["--task", "programs", "--method", "vector_max_at_k", "--set", "estimator.kappa=8"], "kappa = 8"),
        (["--task", "programs", "--method", "grpo", "--set", "estimator.weights=[1, 2]"], "2 weights for 8 rewards"),
        (["--task", "programs", "--method", "vpo", "--out", "file/policy"], "/file is not a folder"),
        (["--task", "programs", "--method", "vpo", "--out", "file"], "file is not a folder"),
        (["--task", "programs", "--method", "vpo", "--out", "."], "is not empty"),
        (["--task", "programs", "--method", "base", "--base", "there"], "--base does not apply"),
        (["--task", "programs", "--method", "base", "--set", "steps=9"], "--set does not apply"),
        (["--task", "programs", "--method", "base", "--diagnose-rewards"], "--diagnose-rewards does not apply"),
        (
            [
                "--task",
                "programs",
                "--method",
                "vpo",
                "--set",
                "estimator.kappa=3",
                "--set",
                "estimator.weights=[5, 5]",
            ],
            "method vpo does not use estimator.weights and estimator.kappa",
        ),
        (
            ["--task", "maze", "--method", "vpo", "--set", "prompt_style=prefilled", "--set", "max_tokens=5"],
            "task maze does not use max_tokens and prompt_style",
        ),
        (["--task", "maze", "--method", "vpo", "--warm-up"], "task maze does not use warm_up"),
        (["--task", "maze", "--method", "vpo", "--set", "mutation_kl=0.1"], "share = 0 does not use mutation_kl"),
        (["--task", "programs", "--method", "pkpo", "--set", "estimator.step=5"], "pkpo does not use estimator.step"),
        (["--task", "programs", "--method", "vpo", "--steps", "4", "--set", "steps=3"], "Write --steps 3."),
        (["--task", "programs", "--method", "vpo", "--gpu"], "--gpu: torch finds no CUDA device"),
    ],
    ids=lambda value: None if isinstance(value, list) else value,
)
def test_invalid_arguments_are_reported_first(arguments, said, tmp_path):
    (tmp_path / "file").touch()
    done = train(*arguments, cwd=tmp_path, check=False)
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_base_is_trained_in_the_current_directory(tmp_path, monkeypatch):
    from speciate.training import recipe

    monkeypatch.setitem(recipe.BASES, "programs", recipe.BaseConfig(problems=20, steps=1, batch=8))
    (tmp_path / "mine").mkdir()
    train("--task", "programs", "--method", "base", "--out", ".", cwd=tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert recipe.read_manifest(tmp_path / "mine").method == "base"


@pytest.mark.parametrize("method", ["base", "vpo"])
def test_an_interrupted_base_starts_again(tmp_path, monkeypatch, method):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("speciate.training.recipe.train_base", interrupted)
    done = train("--task", "programs", "--method", method, cwd=tmp_path, check=False)
    assert done.exit_code == 130
    assert "base: interrupted before the first step. Repeat the command: a base starts again." in done.stderr
    assert "--resume" not in done.stderr


def test_a_diverging_training_stops_without_saving(base, tmp_path):
    arguments = ["--task", "programs", "--method", "grpo", "--base", str(base), "--out", "policy", "--steps", "9"]
    arguments += [*SMALL, "--set", "save_every=1"]
    done = train(*arguments, "--set", "learning_rate=1e30", cwd=tmp_path, check=False)
    assert done.exit_code == 4, done.exception
    assert "the training has diverged" in done.stderr
    assert "smaller learning_rate" in done.stderr
    from safetensors.numpy import load_file

    for path in tmp_path.glob("policy/checkpoints/checkpoint-*/model.safetensors"):
        assert all(np.isfinite(tensor).all() for tensor in load_file(path).values())


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.pt", "rng_state.pth", "speciate_state.json"])
def test_a_damaged_checkpoint_is_reported_or_skipped(base, tmp_path, monkeypatch, file):
    from dataclasses import replace

    from speciate.domain.errors import ConflictError
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import train_policy
    from speciate.training.tasks import GENERATED
    from speciate.training.trainer import VectorTrainer

    config = replace(TrainConfig.tiny("grpo", "programs"), steps=3, prompts=8, problems=40)
    compute_loss = VectorTrainer._compute_loss

    def stop(self, model, inputs):
        if self.state.global_step == 2:
            raise KeyboardInterrupt
        return compute_loss(self, model, inputs)

    monkeypatch.setattr(VectorTrainer, "_compute_loss", stop)
    with pytest.raises(KeyboardInterrupt):
        train_policy(GENERATED["programs"], config, base, tmp_path / "cut")
    monkeypatch.undo()
    (tmp_path / "cut/checkpoints/checkpoint-2" / file).write_bytes(b"")  # as a power failure leaves it
    if file != "speciate_state.json":
        with pytest.raises(ConflictError, match=r"checkpoint-2 cannot be read: .* Remove its folder"):
            train_policy(GENERATED["programs"], config, base, tmp_path / "cut", resume=True)
        return
    train_policy(GENERATED["programs"], config, base, tmp_path / "cut", resume=True)
    assert len(metrics(tmp_path / "cut")) == 3


@pytest.mark.parametrize("fits", [500, 100_000, 2_000_000], ids=["nothing", "no-weights", "no-optimizer"])
def test_a_failed_write_is_reported_and_the_run_resumes(base, tmp_path, fits):
    import resource

    arguments = ["--task", "programs", "--method", "grpo", "--base", str(base), "--out", "policy", *SMALL]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (fits, before[1]))  # larger files fail, as all do on a full disk
    try:
        done = train(*arguments, "--steps", "2", cwd=tmp_path, check=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.exit_code == 6, done.exception
    assert "policy" in done.stderr
    assert "cannot write" in done.stderr
    train(*arguments, "--steps", "2", "--resume", cwd=tmp_path)
    assert (tmp_path / "policy" / "manifest.json").is_file()


def test_out_of_memory_is_reported_with_the_remedy(base, tmp_path, monkeypatch):
    from speciate.policies.manifest import read_manifest
    from speciate.training.trainer import VectorTrainer

    def full(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    monkeypatch.setattr(VectorTrainer, "_compute_loss", full)
    arguments = ["--task", "programs", "--method", "grpo", "--base", str(base), "--out", "policy", *SMALL]
    arguments += ["--steps", "1"]
    done = train(*arguments, cwd=tmp_path, check=False)
    assert done.exit_code
    assert "not enough memory for 64 rollouts" in done.stderr
    assert "micro_batch to a smaller multiple of 8, then continue with --resume" in done.stderr
    least = train(*arguments, "--set", "micro_batch=8", "--resume", cwd=tmp_path, check=False)
    assert "One group is the least of a pass: use a smaller max_tokens" in least.stderr
    monkeypatch.undo()
    train(*arguments, "--set", "micro_batch=16", "--resume", cwd=tmp_path)
    assert read_manifest(tmp_path / "policy").config["micro_batch"] == 16


def test_an_adapter_of_a_base_in_shards_is_trained(base, tmp_path):
    from speciate.training.models import load_model

    model, tokenizer = load_model(base)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "shards", max_shard_size="500KB")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    done = train("--task", "programs", "--method", "grpo", "--base", "shards", "--out", "policy", "--steps", "1",
                 *SMALL, "--set", "lora_rank=2", cwd=tmp_path)  # fmt: skip
    assert (tmp_path / "policy" / "adapter_model.safetensors").is_file()
    assert "--base MODEL --adapter policy  (with vLLM)" in done.stdout
    assert "speciate serve" not in done.stdout


@pytest.mark.parametrize("harm", ["weights", "config", "adapter", "layers", "tokenizer", "words"])
def test_a_broken_base_is_reported(base, tmp_path, harm):
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(base, broken)
    if harm == "weights":
        (broken / "model.safetensors").write_bytes(b"\0" * 100)
    elif harm == "config":
        (broken / "config.json").write_text('{"architectures": ["Nonsense"], "model_type": "nonsense"}')
    elif harm == "adapter":
        (broken / "config.json").rename(broken / "adapter_config.json")
    elif harm == "layers":
        config = json.loads((broken / "config.json").read_text())
        (broken / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 9}))
    elif harm == "tokenizer":
        text = json.loads((broken / "tokenizer.json").read_text())
        text["model"]["vocab"] |= {f"more{i}": 500 + i for i in range(99)}
        (broken / "tokenizer.json").write_text(json.dumps(text))
    else:  # a model of another task
        text = (broken / "tokenizer.json").read_text()
        (broken / "tokenizer.json").write_text(text.replace('"<c0+>"', '"00S"'))
    done = train("--task", "programs", "--method", "vpo", "--base", "broken", cwd=tmp_path, check=False)
    assert done.exit_code
    assert "broken" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "programs-vpo-0").exists()  # nothing has begun: a corrected run may start


def test_a_chat_task_needs_a_chat_template(base, tmp_path):
    from speciate.domain.errors import InvalidInputError
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import train_policy
    from speciate.training.tasks import open_task

    with pytest.raises(InvalidInputError, match="has no chat template"):
        train_policy(open_task("python"), TrainConfig.paper("vpo"), base, tmp_path / "policy")


class _InterruptionError(Exception):
    pass


@pytest.mark.parametrize(("style", "bfloat16"), [("prefilled", False), ("scaffolded", True)])
def test_an_adapter_continues_prefilled_prompts_and_resumes_to_the_same_weights(tmp_path, monkeypatch, style, bfloat16):
    from safetensors.numpy import load_file

    from speciate.domain.policy import PolicyRole, PromptStyle
    from speciate.policies.manifest import policy_of
    from speciate.training.config import TrainConfig
    from speciate.training.recipe import train_policy
    from speciate.training.tasks.python import PythonTask
    from speciate.training.trainer import VectorTrainer
    from tests.unit.inference.checkpoints import write_bytes

    base = write_bytes(tmp_path / "bytes")
    asked = []

    def answers(_self, row, completion, _ids):  # the letters of an untrained model are no program
        asked.append(row["prompt"])
        return [Answer(completion)]

    def score(_self, batch):
        return [[(sum(map(ord, text)) % 8 / 8,) * 8 for text in texts] for _, texts in batch]

    monkeypatch.setattr(VectorTrainer, "_answers", answers)
    monkeypatch.setattr(PythonTask, "score", score)
    config = TrainConfig(
        "vpo", steps=2, prompts=2, group=4, problems=4, mutation_share=0.0, kl=0.0, save_every=1, lora_rank=2,
        max_tokens=24, max_prompt_tokens=2000, prompt_style=PromptStyle(style), bfloat16=bfloat16,
    )  # fmt: skip
    task = PythonTask(name="python-easy", most_steps=2)

    def interrupt(step, _steps, _seen):
        raise _InterruptionError(step)

    train_policy(task, config, base, tmp_path / "whole")
    with pytest.raises(_InterruptionError):
        train_policy(task, config, base, tmp_path / "resumed", progress=interrupt)
    train_policy(task, config, base, tmp_path / "resumed", resume=True)
    whole, resumed = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "resumed"))
    assert all(np.array_equal(whole[name], resumed[name]) for name in whole)
    assert any(np.abs(weights).max() > 0 for name, weights in whole.items() if "lora_B" in name)
    assert all(text.endswith("[assistant] ```python\ndef solve(x):") for text in asked)
    served = policy_of(tmp_path / "whole", "served")
    assert served.prompt_style is PromptStyle(style)
    assert served.tokens_for(PolicyRole.PROPOSE) == 24


@pytest.mark.parametrize("writer", ["generator", "transformers"])
def test_a_scaffold_has_no_loss(tmp_path, monkeypatch, writer):
    """Whatever probability the model gives to what the scaffold writes, the weights come out the same."""
    import torch
    from safetensors.numpy import load_file

    from speciate.domain.policy import PromptStyle
    from speciate.training.config import TrainConfig
    from speciate.training.generator import Generator
    from speciate.training.recipe import train_policy
    from speciate.training.tasks.python import PythonTask
    from speciate.training.trainer import VectorTrainer
    from tests.unit.inference.checkpoints import write_bytes

    base, seen = write_bytes(tmp_path / "bytes"), []
    compute_loss, compute = VectorTrainer._compute_loss, VectorTrainer._get_per_token_logps_and_entropies

    def noted(self, model, inputs):
        seen.append(inputs)
        return compute_loss(self, model, inputs)

    def unlikely(self, model, input_ids, attention_mask, logits_to_keep, **options):
        logps, *rest = compute(self, model, input_ids, attention_mask, logits_to_keep, **options)
        ours = seen[-1]["tool_mask"][:, :logits_to_keep] if seen else torch.ones_like(logps)
        return torch.where(ours == 0, 3.0 * logps, logps), *rest

    monkeypatch.setattr(VectorTrainer, "_answers", lambda _self, _row, completion, _ids: [Answer(completion)])
    monkeypatch.setattr(VectorTrainer, "_compute_loss", noted)
    if writer == "transformers":
        monkeypatch.setattr(Generator, "supports", lambda _: False)
    monkeypatch.setattr(
        PythonTask, "score", lambda _, batch: [[(sum(map(ord, t)) % 8 / 8,) * 8 for t in texts] for _, texts in batch]
    )
    config = TrainConfig(
        "vpo", steps=1, prompts=2, group=4, problems=4, mutation_share=0.0, kl=0.0, lora_rank=2, micro_batch=8,
        max_tokens=36, max_prompt_tokens=2000, prompt_style=PromptStyle.SCAFFOLDED,
    )  # fmt: skip
    task = PythonTask(name="python-easy", most_steps=2)
    train_policy(task, config, base, tmp_path / "plain")
    theirs = (seen[0]["completion_mask"] * (1 - seen[0]["tool_mask"])).sum(1)
    assert theirs.min() >= 2 * len("def solve(x):")
    assert seen[0]["num_items_in_batch"] == (seen[0]["completion_mask"] * seen[0]["tool_mask"]).sum() <= 8 * 36
    monkeypatch.setattr(VectorTrainer, "_get_per_token_logps_and_entropies", unlikely)
    train_policy(task, config, base, tmp_path / "unlikely")
    plain, changed = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("plain", "unlikely"))
    assert all(np.array_equal(plain[name], changed[name]) for name in plain)
    assert any(np.abs(weights).max() > 0 for name, weights in plain.items() if "lora_B" in name)


def test_improbable_padding_leaves_the_weights_finite(base, tmp_path, monkeypatch):
    import torch

    from speciate.training.trainer import VectorTrainer

    compute = VectorTrainer._get_per_token_logps_and_entropies
    padded = []

    def improbable(self, model, input_ids, attention_mask, logits_to_keep, **options):
        logps, *rest = compute(self, model, input_ids, attention_mask, logits_to_keep, **options)
        padding = attention_mask[:, -logits_to_keep:] == 0
        if torch.is_grad_enabled():  # not in the pass of the reference, so that the divergence overflows
            padded.append(int(padding.sum()))
            logps = torch.where(padding, logps - 1e4, logps)
        return logps, *rest

    monkeypatch.setattr(VectorTrainer, "_get_per_token_logps_and_entropies", improbable)
    arguments = ["--task", "programs", "--method", "grpo", "--base", str(base), "--out", "policy", *SMALL]
    train(*arguments, "--steps", "2", cwd=tmp_path)  # refuses weights that are not finite
    assert max(padded) > 0


def test_no_training_is_reported_to_the_makers_of_its_libraries() -> None:
    asks = (
        "import speciate.training.trainer as _, huggingface_hub as hub; print(hub.constants.HF_HUB_DISABLE_TELEMETRY)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    told = subprocess.run([sys.executable, "-c", asks], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "True\n"


def test_every_pass_has_at_most_a_micro_batch(base, tmp_path, monkeypatch):
    from speciate.training import trainer

    sizes, whole = set(), trainer.shared_logps

    def noted(model, prompts, *rest):
        sizes.add(len(prompts))
        return whole(model, prompts, *rest)

    monkeypatch.setattr(trainer, "shared_logps", noted)
    arguments = ["--task", "programs", "--method", "grpo", "--base", str(base), "--out", "policy", *SMALL]
    train(*arguments, "--set", "micro_batch=8", "--set", "kl=1e-3", "--steps", "1", cwd=tmp_path)
    assert sizes == {8}


def test_other_processes_wait_for_the_manifest(base, tmp_path, monkeypatch):
    import accelerate

    from speciate.training.trainer import VectorTrainer

    waits = []
    monkeypatch.setattr(VectorTrainer, "is_world_process_zero", lambda _: False)
    monkeypatch.setattr(
        accelerate.Accelerator, "wait_for_everyone", lambda _: waits.append((tmp_path / TRAINED).exists())
    )
    arguments = ["--task", "programs", "--method", "grpo", "--base", str(base), "--out", "policy", *SMALL]
    train(*arguments, "--steps", "1", cwd=tmp_path, check=False)
    assert waits[-1:] == [True]


TRAINED = "policy/checkpoints/checkpoint-1"


def test_one_process_takes_one_gpu(base, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    arguments = ["--task", "programs", "--method", "grpo", "--base", str(base), "--out", "policy", *SMALL]
    assert "no CUDA device" in train(*arguments, "--gpu", cwd=tmp_path, check=False).output
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"


def test_a_base_in_the_way_is_removed_or_avoided(tmp_path):
    (tmp_path / "programs-base-0").mkdir()
    (tmp_path / "programs-base-0" / "other.txt").write_text("")
    done = train("--task", "programs", "--method", "vpo", "--out", "a", *SMALL, cwd=tmp_path, check=False)
    assert "choose an --out in another directory" in str(done.exception) + done.output


def test_two_processes_train_one_policy(base, tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "speciate.cli"]
    arguments = ["--task", "programs", "--method", "vpo", "--base", str(base), "--out", "policy", *SMALL]
    done = subprocess.run(
        [*launch, "train", *arguments, "--steps", "1"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "policy" / "manifest.json").is_file()


def test_several_processes_need_a_base(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = train("--task", "programs", "--method", "vpo", "--out", "a", *SMALL, cwd=tmp_path, check=False)
    assert "several processes would write the same base" in str(done.exception) + done.output
