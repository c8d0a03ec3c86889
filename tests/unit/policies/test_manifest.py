"""Manifests: registrations from checkpoints, and errors for broken ones."""

import json
import os

import pytest

from speciate.domain.errors import InvalidInputError, NotFoundError, PolicyUnavailableError
from speciate.domain.policy import PolicyRole, PromptFormat
from speciate.policies import build_client
from speciate.policies.bundled import bundled_policies, checkpoints
from speciate.policies.embedded import ADDRESS_VARIABLE
from speciate.policies.manifest import MANIFEST as NAME
from speciate.policies.manifest import Manifest, policy_of, read_manifest, weights_digest, write_manifest

MANIFEST = Manifest(task="maze", method="vpo", codec="maze", max_tokens=24, answers_per_rollout=3, seed=1, steps=9)

MUTATORS = {"maze-mutator", "programs-mutator"}
METHODS = ("base", "grpo", "max-at-k", "multi-rlvr", "vpo", "vector-max-at-k")


def checkpoint(folder):
    write_manifest(folder, MANIFEST)
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_a_manifest_becomes_a_registration(tmp_path):
    assert read_manifest(checkpoint(tmp_path)) == MANIFEST
    policy = policy_of(tmp_path, "mine", base_url="http://127.0.0.1:8008/v1")
    assert (policy.kind, policy.model, policy.training_method) == ("openai_compatible", tmp_path.name, "vpo")
    assert (policy.prompt_format, policy.codec, policy.sampling.max_tokens) == (PromptFormat.COMPLETION, "maze", 72)
    assert policy.checkpoint_digest == weights_digest(tmp_path)
    assert (policy.answers_for(PolicyRole.PROPOSE), policy.answers_for(PolicyRole.MUTATE)) == (3, 1)
    assert (policy.tokens_for(PolicyRole.PROPOSE), policy.tokens_for(PolicyRole.MUTATE)) == (72, 24)
    assert policy.sampling.temperature == 1.0
    before = policy.digest
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert policy_of(tmp_path, "mine", base_url="http://127.0.0.1:8008/v1").digest != before


def test_a_policy_is_asked_at_the_temperature_of_its_training(tmp_path):
    write_manifest(checkpoint(tmp_path), MANIFEST.model_copy(update={"config": {"temperature": 0.7}}))
    assert policy_of(tmp_path, "mine", base_url="http://127.0.0.1:8008/v1").sampling.temperature == 0.7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a manifest"),
        ("{}", "task: is missing: expected a value"),
        ('{"extra": 1}', "is not a manifest"),
        ("\udcff", "not text"),
    ],
)
def test_a_broken_manifest_is_named(tmp_path, text, said):
    (tmp_path / "manifest.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInputError, match=said) as caught:
        read_manifest(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"answers_per_rollout": 10**9}, "max_tokens"),
        ({"config": {"mutation_share": float("nan")}}, "JSON"),
    ],
)
def test_a_manifest_beyond_the_limits_of_a_policy_is_named(tmp_path, changes, said):
    text = json.loads(checkpoint(tmp_path).joinpath("manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**text, "metrics": [{"entropy": 1, "mean": 1}], **changes}))
    with pytest.raises(InvalidInputError, match=said) as caught:
        policy_of(tmp_path, "mine")
    assert str(tmp_path) in str(caught.value)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"manifest\.json"):
        read_manifest(tmp_path)
    write_manifest(tmp_path, MANIFEST)
    with pytest.raises(NotFoundError, match=r"model\.safetensors"):
        policy_of(tmp_path, "mine")


def test_sharded_weights_have_a_digest(tmp_path):
    """Larger models are published in shards."""
    for number in (1, 2):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").write_bytes(b"part %d" % number)
    before = weights_digest(tmp_path)
    assert len(before) == 64
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"another part")
    assert weights_digest(tmp_path) != before


def test_every_bundled_checkpoint_is_complete_and_small():
    found = checkpoints()
    assert set(found) == {f"{task}-{method}" for task in ("maze", "programs") for method in METHODS} | MUTATORS
    for name, folder in found.items():
        manifest = read_manifest(folder)
        kind = "mutator" if manifest.is_mutator else manifest.method.replace("_", "-")
        assert name == f"{manifest.task}-{kind}"
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 2_000_000
        assert {path.name for path in folder.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
        assert not [path for path in folder.iterdir() if path.suffix in {".bin", ".pt", ".pkl"}]  # nothing to unpickle
        base = weights_digest(found[f"{manifest.task}-base"])
        assert manifest.base_digest == (None if manifest.method == "base" else base)
        assert json.loads((folder / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    assert len({policy.checkpoint_digest for policy in bundled_policies()}) == len(found)


def test_an_embedded_policy_without_its_server_names_the_remedy(monkeypatch):
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)
    client = build_client(policy_of(checkpoints()["maze-base"], "maze-base"))
    with pytest.raises(PolicyUnavailableError, match="needs the inference server") as caught:
        client.ping()
    assert "speciate up" in caught.value.remedy


def test_a_named_pipe_is_refused_instead_of_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(InvalidInputError, match="is not a file"):
        read_manifest(tmp_path)
