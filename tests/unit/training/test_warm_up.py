"""The supervised warm-up on the form of sets, up to a service that gets readable sets from the warmed model."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra 'train'")
from tokenizers import Tokenizer, pre_tokenizers, trainers

from speciate.domain.errors import ConflictError, InvalidInputError
from speciate.domain.policy import PolicyRole, PromptStyle
from speciate.inference.app import create_app
from speciate.policies import build_client
from speciate.policies.manifest import policy_of, read_manifest
from speciate.ports.policy import SampleRequest
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import Answer, parse_completion
from speciate.training import warm_up as module
from speciate.training.config import TrainConfig, WarmUpConfig
from speciate.training.recipe import train_policy
from speciate.training.tasks import GENERATED, Split
from speciate.training.tasks.python import PythonTask
from speciate.training.trainer import policy_of as policy_of_task
from speciate.training.warm_up import warm_up
from tests.support.http_server import serve_app
from tests.unit.inference.checkpoints import write_bytes

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
BODIES = ("x", "1", "2")
VOCABULARY = 700
WARM = WarmUpConfig(
    demonstrations=True, gate=0.9, steps=120, every=5, batch=16, learning_rate=5e-3, problems=24, held_out=3
)
CONFIG = TrainConfig(
    "vpo", prompts=2, group=4, problems=8, steps=1, mutation_share=0.0, kl=0.0, max_tokens=60,
    max_prompt_tokens=2000, prompt_style=PromptStyle.SCAFFOLDED, warm_up=WARM,
)  # fmt: skip


class Task(PythonTask):
    """Short functions, which a model of 64 dimensions learns within a minute."""

    def with_solutions(self, split, count, *, start=0):
        for problem, _ in super().with_solutions(split, count, start=start):
            yield problem, tuple(f"def solve(x):\n    return {body}\n" for body in BODIES)

    def score(self, batch):
        return [[(len(text) % 8 / 8,) * 8 for text in texts] for _, texts in batch]


TASK = Task(name="python-easy", most_steps=1)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model whose tokens are long parts of the prompts, so that these have few."""
    folder = write_bytes(tmp_path_factory.mktemp("base"), vocab_size=VOCABULARY)
    tokenizer, rng = Tokenizer.from_file(str(folder / "tokenizer.json")), np.random.default_rng(0)
    texts = [
        build_prompt(problem, PolicyRole.PROPOSE, [], [], policy_of_task(TASK, m, CONFIG.prompt_style), rng).text()
        for problem in TASK.problems(Split.TRAIN, 40)
        for m in (1, 3)
    ]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<eos>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def warmed(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("warm") / "warm"
    seen = []
    warm_up(TASK, CONFIG, base, folder, progress=lambda step, _, measured: seen.append((step, measured["readable"])))
    assert seen[0][0] == 0
    assert seen[0][1] < 0.5
    return folder


def test_a_warm_up_ends_at_its_gate_and_says_so(base, warmed, tmp_path):
    manifest = read_manifest(warmed)
    record = manifest.warm_up
    assert record["gate"] == 0.9
    assert record["readable"] >= 0.9
    assert 0 < manifest.steps < WARM.steps
    assert all(each["readable"] < 0.9 for each in manifest.metrics[:-1])
    assert not (warmed / "checkpoints").exists()
    warm_up(TASK, CONFIG, base, warmed, progress=lambda *_: pytest.fail("it is complete"))
    with pytest.raises(ConflictError, match="holds a run with seed = 0, not 1"):
        warm_up(TASK, replace(CONFIG, seed=1), base, warmed)
    train_policy(TASK, CONFIG, warmed, tmp_path / "policy")
    trained = read_manifest(tmp_path / "policy")
    assert trained.warm_up == record
    with serve_app(create_app({"policy": tmp_path / "policy"})) as url:
        policy = policy_of(tmp_path / "policy", "policy", base_url=f"{url}/v1")
        assert policy.probe == trained.probe
        with build_client(policy) as client:
            assert "it answers with" in client.ping()
    assert len(trained.probe.prompts) == 4


def test_a_served_policy_writes_sets_as_its_manifest_says(warmed):
    (problem,) = TASK.problems(Split.TEST, 1)
    with serve_app(create_app({"warm": warmed})) as url:
        policy = policy_of(warmed, "warm", base_url=f"{url}/v1")
        policy = policy.model_copy(update={"timeout_s": 60.0})
        assert policy.prompt_style is PromptStyle.SCAFFOLDED
        prompt = build_prompt(problem, PolicyRole.PROPOSE, [], [], policy, np.random.default_rng(0))
        served = policy.model_copy(update={"model": warmed.name})
        with build_client(served) as client:
            (result,) = client.sample([SampleRequest(prompt, PolicyRole.PROPOSE, 8, 3)])
    slots = [
        answer.failure is None or answer.failure.reason == "duplicate_in_rollout"
        for completion in result.completions
        for answer in parse_completion(completion.text, problem=problem, policy=policy, parent=None)
    ]
    assert len(slots) == 24, "three answers each"
    assert np.mean(slots) > 0.8


class _InterruptionError(Exception):
    pass


def test_an_interrupted_warm_up_continues_to_the_same_weights(base, warmed, tmp_path, monkeypatch):
    def interrupt(step, _steps, _seen):
        if step == 10:
            raise _InterruptionError

    with pytest.raises(_InterruptionError):
        warm_up(TASK, CONFIG, base, tmp_path / "cut", progress=interrupt)
    with pytest.raises(ConflictError, match="unfinished"):
        warm_up(TASK, CONFIG, base, tmp_path / "cut")
    monkeypatch.setattr(module._Sampler, "_pools", lambda _: pytest.fail("its examples are kept"))
    warm_up(TASK, CONFIG, base, tmp_path / "cut", resume=True)
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == (warmed / "model.safetensors").read_bytes()
    assert read_manifest(tmp_path / "cut").metrics == read_manifest(warmed).metrics


def test_a_warm_up_that_could_not_be_written_is_resumed_without_an_update(base, tmp_path, monkeypatch):
    folder, measures = tmp_path / "warm", iter([0.0, 0.95])
    config = replace(CONFIG, warm_up=replace(WARM, steps=4, every=2))
    monkeypatch.setattr(module._Sampler, "measure", lambda *_: {"readable": next(measures)})

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(module, "write_manifest", fail)
        with pytest.raises(ConflictError, match="No space left"):
            warm_up(TASK, config, base, folder)
    weights = (folder / "model.safetensors").read_bytes()
    warm_up(TASK, config, base, folder, resume=True)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert read_manifest(folder).steps == 2


def test_a_full_disk_ends_a_warm_up_which_then_continues(base, tmp_path, monkeypatch):
    folder, measures = tmp_path / "warm", iter([0.0, 0.0, 0.95])
    config = replace(CONFIG, warm_up=replace(WARM, steps=2, every=2))
    monkeypatch.setattr(module._Sampler, "measure", lambda *_: {"readable": next(measures)})

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(module.Trainer, "_save_checkpoint", fail)
        with pytest.raises(ConflictError, match=r"No space left.*--resume"):
            warm_up(TASK, config, base, folder)
    warm_up(TASK, config, base, folder, resume=True)
    assert (folder / "model.safetensors").is_file()


def test_a_missed_gate_is_an_error_and_more_steps_continue(base, tmp_path):
    folder = tmp_path / "warm"
    few = replace(CONFIG, bfloat16=True, warm_up=replace(WARM, steps=2, every=2))
    with pytest.raises(InvalidInputError, match=r"after 2 updates with \d+% of slots readable") as raised:
        warm_up(TASK, few, base, folder)
    assert "--resume" in raised.value.remedy
    assert not (folder / "manifest.json").exists()
    easy = replace(few, warm_up=replace(few.warm_up, steps=4, gate=1e-9))

    def judge(problems, singles, sets):
        shapes = {(len(one), len(one[0]), len(one[0][0])) for one in (singles, sets)}
        assert shapes <= {(len(problems), CONFIG.group, m) for m in (1, 2, 3)}
        return {"ready": 0.0}

    with pytest.raises(InvalidInputError, match="ready 0"):
        warm_up(TASK, easy, base, folder, resume=True, judge=judge)
    more = replace(easy, warm_up=replace(easy.warm_up, steps=6))
    warm_up(TASK, more, base, folder, resume=True, judge=lambda *_: {"ready": 1.0, "met": 0.5})
    assert read_manifest(folder).steps == 6
    assert read_manifest(folder).metrics[-1]["met"] == 0.5
    with pytest.raises(ConflictError, match="misses a gate of 100%"):
        warm_up(TASK, replace(more, warm_up=replace(more.warm_up, gate=1.0)), base, folder)


def test_examples_are_the_models_own_readable_answers(base, tmp_path, monkeypatch):
    """Without demonstrations: half single answers and half sets of different answers, in the form of the prompts."""
    from speciate.training.trainer import VectorTrainer

    written = iter(range(10**6))
    monkeypatch.setattr(
        VectorTrainer, "_answers", lambda *_: [Answer(f"def solve(x):\n    return {next(written) % 3}\n")]
    )
    folder = tmp_path / "warm"
    warm = replace(WARM, demonstrations=False, steps=1, every=1, problems=3, gate=0.99, pairs=2, batch=4)
    chosen = replace(CONFIG, warm_up=warm)
    with pytest.raises(InvalidInputError):
        warm_up(TASK, chosen, base, folder)
    examples = json.loads((folder / "checkpoints" / "examples.json").read_text())
    texts = [text.removesuffix("\n```") for _, text in examples]
    assert len(texts) == 12
    for single, several in zip(texts[::2], texts[1::2], strict=True):
        answers = several.split("\n\ndef solve(x):")
        assert sorted(answers) == [f"\n    return {i}" for i in range(3)]
        assert single in answers
    assert all(prompt.endswith("[assistant] ```python\ndef solve(x):") for prompt, _ in examples)


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        (GENERATED["maze"], {}, "know the form of sets"),
        (
            PythonTask(name="python"),
            {"problems": 2, "held_out": 1, "demonstrations": True},
            "different readable answers",
        ),
    ],
)
def test_what_a_warm_up_cannot_do(base, tmp_path, task, changes, message):
    config = replace(CONFIG, warm_up=replace(WARM, **changes))
    with pytest.raises(InvalidInputError, match=message):
        warm_up(task, config, base, tmp_path / "warm")
