"""One training step of a run on a bundled policy: reproducible, complete on disk, served, and undone when it fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from speciate.domain.errors import LearningError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from experiments.generation import generate  # noqa: E402
from speciate.domain.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError  # noqa: E402
from speciate.domain.learning import Learning, Lineage, learned_slug  # noqa: E402
from speciate.domain.policy import Policy, PromptFormat, PromptStyle  # noqa: E402
from speciate.domain.rollout import Prompt  # noqa: E402
from speciate.inference.engine import Engine  # noqa: E402
from speciate.inference.tokenizer import TextTokenizer  # noqa: E402
from speciate.policies.bundled import bundled_policies, checkpoints  # noqa: E402
from speciate.policies.export import OPTIMIZER, export_checkpoint  # noqa: E402
from speciate.policies.manifest import policy_of, weights_digest  # noqa: E402
from speciate.ports.learner import LearnedCheckpoint, LearningGroup, LearningRollout, LearningTask  # noqa: E402
from speciate.prompts.compact import _SYSTEM as SYSTEM  # noqa: E402
from speciate.training import learner  # noqa: E402
from speciate.training.learner import TorchLearner  # noqa: E402
from tests.unit.inference.checkpoints import write_bytes  # noqa: E402

BASE = next(policy for policy in bundled_policies() if policy.slug == "maze-base")
PROMPTS = ("S00 .01 G02 .12 E22 <b9> <one>", "S60 .50 .40 G41 .31 .21 E20 <b12> <one>")


def groups(folder: Path, seed: int, age: int = 0) -> tuple[LearningGroup, ...]:
    """Sample two groups of eight; a completion earns the more the shorter it is."""
    engine = Engine.load(folder)
    text = TextTokenizer(folder, engine.checkpoint.config.vocab_size, engine.checkpoint.config.max_position_embeddings)
    found = generate(engine, [text.encode(p) for p in PROMPTS], n=8, max_tokens=12, seeds=[seed, seed + 1])
    return tuple(
        LearningGroup(
            Prompt("", prompt),
            tuple(
                LearningRollout(one.token_ids, one.logprobs, ((1 - len(one.token_ids) / 12, 0.5),)) for one in sampled
            ),
            age,
        )
        for prompt, sampled in zip(PROMPTS, found, strict=True)
    )


def task(**changes: Any) -> LearningTask:
    given: dict[str, Any] = {
        "learning": Learning(groups=2, learning_rate=3e-3),
        "seed": 5,
        "step": 0,
        "base": BASE,
        "parent": BASE,
        "slug": "maze-base-0123456789ab",
        "groups": groups(checkpoints()["maze-base"], 1),
    }
    return LearningTask(**given | changes)


def following(before: LearningTask, made: LearnedCheckpoint, folder: Path) -> LearningTask:
    parent = before.parent.model_copy(update={"model": made.model, "checkpoint_digest": made.digest})
    sampled = groups(folder / made.model, 10 * before.step + 20)
    return replace(before, step=before.step + 1, parent=parent, groups=sampled)


def test_steps_teach_and_a_repeated_step_gives_the_same_checkpoint(tmp_path: Path) -> None:
    learner, one, seen, first = TorchLearner(tmp_path), task(), [], None
    for _ in range(3):
        made = learner.step(one)
        assert made.model == f"maze-base-0123456789ab-{made.digest[:12]}"
        assert weights_digest(tmp_path / made.model) == made.digest
        assert made.metrics["gap"] < 1e-4, "the engine's numbers are the trainer's"
        seen.append(made.metrics["reward"])
        first = first or (one, made)
        one = following(one, made, tmp_path)
    assert seen[-1] > seen[0] + 0.1
    # Of three versions, the last and its parent keep the state of their optimizer; all keep their weights.
    assert len(list(tmp_path.iterdir())) == 3
    assert len(list(tmp_path.glob(f"*/{OPTIMIZER}"))) == 2
    # A worker without the model in memory takes the same second step, from the files alone.
    again, other = TorchLearner(tmp_path / "other"), first[0]
    made = again.step(other)
    assert made.digest == first[1].digest
    second = following(other, made, tmp_path / "other")
    assert TorchLearner(tmp_path / "other").step(second).digest == again.step(second).digest


def test_a_pass_holds_logits_of_completions_only_and_as_many_rows_as_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes, compute = [], learner.logps_and_entropies

    def noted(logits: torch.Tensor, ids: torch.Tensor) -> Any:
        shapes.append(tuple(logits.shape[:2]))
        return compute(logits, ids)

    one = task()
    longest = max(len(rollout.token_ids) for group in one.groups for rollout in group.rollouts)
    whole = TorchLearner(tmp_path / "whole").step(one)
    monkeypatch.setattr(learner, "logps_and_entropies", noted)
    monkeypatch.setattr(learner, "_PASS_BYTES", 1)
    parts = TorchLearner(tmp_path / "parts").step(one)
    assert len(shapes) == 2 * 16, "of each row, for the model and its base"
    assert {rows for rows, _ in shapes} == {1}
    assert max(places for _, places in shapes) <= longest + len(PROMPTS[1].split()) - len(PROMPTS[0].split())
    assert parts.metrics == pytest.approx(whole.metrics, rel=1e-4)


CHAT = Policy(slug="chat", kind="openai_compatible", base_url="http://127.0.0.1:1/v1", model="m")
COMPLETION = CHAT.model_copy(update={"prompt_format": PromptFormat.COMPLETION})
OPENED = {"prompt_style": PromptStyle.PREFILLED}
TASK = Prompt(SYSTEM, "Task. It begins with `def f(x):`.")
OPENING = "```python\ndef f(x):"


@pytest.mark.parametrize(
    ("policy", "read"),
    [
        (CHAT, f"[system] {SYSTEM}\n[user] {TASK.user}\n[assistant] "),
        (CHAT.model_copy(update=OPENED), f"[system] {SYSTEM}\n[user] {TASK.user}\n[assistant] {OPENING}"),
        (CHAT.model_copy(update={"options": {"system_role": "user"}}), f"[user] {SYSTEM}\n\n{TASK.user}\n[assistant] "),
        (
            CHAT.model_copy(update={"options": {"extra_body": {"chat_template_kwargs": {"thinks": False}}}}),
            f"[system] {SYSTEM}\n[user] {TASK.user}\n[assistant] <think></think>",
        ),
        (COMPLETION, f"{SYSTEM}\n\n{TASK.user}"),
        (COMPLETION.model_copy(update=OPENED), f"{SYSTEM}\n\n{TASK.user}\n\n{OPENING}"),
    ],
)
def test_the_learner_reads_what_the_client_sends(policy: Policy, read: str, tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(write_bytes(tmp_path))
    tokenizer.chat_template += "{% if thinks is defined and not thinks %}<think></think>{% endif %}"
    ids = learner._prompt_ids(task(base=policy, groups=()), tokenizer, TASK)
    assert tokenizer.decode(ids) == read


def test_weights_without_a_chat_template_end_learning(tmp_path: Path) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(write_bytes(tmp_path))
    tokenizer.chat_template = None
    with pytest.raises(LearningError, match="no chat template"):
        learner._prompt_ids(task(base=CHAT, groups=()), tokenizer, TASK)


def test_a_late_attempt_of_an_older_step_leaves_the_newest_optimizer(tmp_path: Path) -> None:
    """A worker that lost its lease ends after another one has taken its step and the next."""
    taken, tasks = [], [task()]
    for _ in range(3):
        taken.append(TorchLearner(tmp_path).step(tasks[-1]))
        tasks.append(following(tasks[-1], taken[-1], tmp_path))
    TorchLearner(tmp_path).step(tasks[1])
    assert (tmp_path / taken[2].model / OPTIMIZER).is_file()


def test_the_optimizer_of_a_run_that_began_with_a_version_stays(tmp_path: Path) -> None:
    first = task()
    taken = TorchLearner(tmp_path).step(replace(first, slug=learned_slug(first.slug, "b" * 32)))
    again = TorchLearner(tmp_path).step(first)
    TorchLearner(tmp_path).step(following(first, again, tmp_path))
    assert (tmp_path / taken.model / OPTIMIZER).is_file()


def test_others_may_read_a_version(tmp_path: Path) -> None:
    made = TorchLearner(tmp_path).step(task())
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in (tmp_path / made.model).iterdir())


def test_older_versions_have_truncated_ratios(tmp_path: Path) -> None:
    (first, second) = groups(checkpoints()["maze-base"], 3, age=2)
    far = replace(first, rollouts=tuple(replace(r, logprobs=tuple(p - 5 for p in r.logprobs)) for r in first.rollouts))
    made = TorchLearner(tmp_path).step(task(groups=(far, second)))
    assert 0.2 < made.metrics["truncated"] < 0.8
    assert made.metrics["age"] == 2
    assert "gap" not in made.metrics, "log-probabilities of an older version say nothing about the sampler"


def damaged(**changes: Any) -> tuple[LearningGroup, ...]:
    found = groups(checkpoints()["maze-base"], 1)
    (rollout, *rest) = found[0].rollouts
    return (replace(found[0], rollouts=(replace(rollout, **changes), *rest)), found[1])


def test_a_step_that_cannot_be_taken_leaves_nothing(tmp_path: Path) -> None:
    far = tuple(
        replace(g, rollouts=tuple(replace(r, logprobs=(-9.0,) * len(r.logprobs)) for r in g.rollouts))
        for g in groups(checkpoints()["maze-base"], 1)
    )
    cases = [
        (task(groups=far), "nats per token from those of the weights that step 1 trains"),
        (task(groups=damaged(token_ids=(9999,), logprobs=(-1.0,))), "token ids beyond the 391"),
        (task(groups=damaged(logprobs=())), "without its tokens"),
        (task(groups=damaged(token_ids=(5,), logprobs=(np.nan,))), "the loss of step 1 is not finite"),
        (task(base=BASE.model_copy(update={"model": "nowhere"})), "no folder with the weights of policy 'maze-base'"),
        (task(parent=BASE, base=BASE.model_copy(update={"checkpoint_digest": "0" * 64})), "holds other weights"),
    ]
    learner = TorchLearner(tmp_path / "learned")
    for wrong, words in cases:
        with pytest.raises(LearningError, match=words):
            learner.step(wrong)
    assert not (tmp_path / "learned").exists()
    # The next step is not affected by the undone ones.
    assert learner.step(task()).digest == TorchLearner(tmp_path / "again").step(task()).digest


def test_a_run_with_any_seed_can_learn(tmp_path: Path) -> None:
    assert TorchLearner(tmp_path).step(task(seed=2**63 - 1)).digest


def test_an_unwritable_disk_can_be_repaired(tmp_path: Path) -> None:
    place = tmp_path / "learned"
    place.write_text("a file in the way")
    learner = TorchLearner(place)
    with pytest.raises(UnavailableError, match="the checkpoint of step 1 cannot be written"):
        learner.step(task())
    place.unlink()
    assert learner.step(task()).digest == TorchLearner(tmp_path / "again").step(task()).digest


def test_a_full_disk_is_named_in_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 157248 vs 157136")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UnavailableError, match=r"cannot be written to .*: its disk has [0-9,.]+ MB left"):
        TorchLearner(tmp_path / "learned").step(task())
    assert list((tmp_path / "learned").iterdir()) == []


def test_groups_of_problems_with_other_rewards_are_estimated_apart(tmp_path: Path) -> None:
    first, second = groups(checkpoints()["maze-base"], 1)
    single = replace(
        second, rollouts=tuple(replace(r, rewards=((r.rewards[0][0],),)) for r in second.rollouts), weights=(1.0,)
    )
    mixed = TorchLearner(tmp_path).step(task(groups=(first, single)))
    assert mixed.metrics["gradient"] > 0
    expected = np.mean([max(r.rewards[0][0] for r in single.rollouts), max(np.mean(r.rewards) for r in first.rollouts)])
    assert mixed.metrics["best"] == pytest.approx(expected)


def learned_policy(made: LearnedCheckpoint) -> Policy:
    lineage = {"base": "maze-base@1", "parent": "maze-base@1", "run": "r", "step": 1, "estimator": "grpo", "groups": 2}
    changes = {"model": made.model, "checkpoint_digest": made.digest, "lineage": Lineage.model_validate(lineage)}
    return BASE.model_copy(update=changes)


def test_an_exported_version_is_served_and_registered_elsewhere(tmp_path: Path) -> None:
    learned = tmp_path / "learned"
    version = learned_policy(TorchLearner(learned).step(task()))
    export_checkpoint(version, learned, tmp_path / "out")
    assert weights_digest(tmp_path / "out") == version.checkpoint_digest
    assert not (tmp_path / "out" / OPTIMIZER).exists()
    assert generate(Engine.load(tmp_path / "out"), [[1, 2]], n=1, max_tokens=2, seeds=[1])
    imported = policy_of(tmp_path / "out", "elsewhere", base_url="http://127.0.0.1:8008/v1").model_dump(mode="json")
    assert (imported["codec"], imported["checkpoint_digest"]) == ("maze", version.checkpoint_digest)
    export_checkpoint(version, learned, tmp_path / "more", optimizer=True)
    assert (tmp_path / "more" / OPTIMIZER).is_file()
    refused: list[tuple[Policy, Path, type[Exception], str]] = [
        (version, tmp_path / "out", ConflictError, "exists"),
        (BASE, tmp_path / "new", InvalidInputError, "no run learned policy 'maze-base'"),
        (version.model_copy(update={"model": "gone-1"}), tmp_path / "new", NotFoundError, "is not in"),
        (version.model_copy(update={"checkpoint_digest": "0" * 64}), tmp_path / "new", ConflictError, "other weights"),
    ]
    for policy, folder, error, words in refused:
        with pytest.raises(error, match=words):
            export_checkpoint(policy, learned, folder)


def test_an_exported_version_is_asked_as_it_was_trained(tmp_path: Path) -> None:
    form = {"answers_per_rollout": 3, "prompt_style": PromptStyle.PREFILLED, "codec": None}
    sampling = BASE.sampling.model_copy(update={"max_tokens": 384, "temperature": 0.7})
    base = BASE.model_copy(update={**form, "sampling": sampling})
    version = learned_policy(TorchLearner(tmp_path / "learned").step(task(base=base, parent=base)))
    export_checkpoint(version, tmp_path / "learned", tmp_path / "out")
    asked = policy_of(tmp_path / "out", "elsewhere", base_url="http://127.0.0.1:8008/v1")
    assert {name: getattr(asked, name) for name in form} == form
    assert (asked.prompt_format, asked.sampling) == (base.prompt_format, base.sampling)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_is_exported_as_peft_reads_it(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    one = task(learning=Learning(groups=2, lora_rank=4))
    made = TorchLearner(tmp_path / "learned").step(one)
    assert (made.options["base_model"], made.options["adapter_path"]) == (
        BASE.model,
        str(tmp_path / "learned" / made.model),
    )
    export_checkpoint(learned_policy(made), tmp_path / "learned", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "manifest.json"} <= names
    base = transformers.AutoModelForCausalLM.from_pretrained(checkpoints()["maze-base"])
    assert peft.PeftModel.from_pretrained(base, tmp_path / "out").peft_config["default"].r == 4
    # A second step begins with the adapter of the first.
    parent = one.parent.model_copy(update={"model": made.model, "checkpoint_digest": made.digest})
    second = TorchLearner(tmp_path / "learned").step(replace(one, step=1, parent=parent))
    assert second.digest != made.digest
