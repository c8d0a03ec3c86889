"""LoRA adapters on vLLM: loading, unloading, and results equal to those of peft."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies.endpoint_check import adapter_name
from speciate.policies.manifest import weights_digest
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import SampleRequest
from tests.support.openai_contract import TOLERANCE, ServedModel
from tests.vllm.conftest import SLOTS

PROMPT = "S00 .01 G02 .12 E22 <b9> <one>"
REQUEST = SampleRequest(Prompt("", PROMPT), PolicyRole.PROPOSE, 4, 1)

# In a separate process: peft and its libraries emit warnings, which this suite turns into errors.
_MAKE = """
import sys, torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
base, seeds = sys.argv[1], sys.argv[2:]
for folder in seeds:
    torch.manual_seed(len(folder) + sum(map(ord, folder)))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=modules, task_type="CAUSAL_LM"))
    for name, weight in model.named_parameters():
        if "lora_B" in name:  # zero to begin with, so that an untrained adapter changes nothing
            torch.nn.init.normal_(weight, std=0.1)
    model.save_pretrained(folder)
"""
_SCORE = """
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, folder = sys.argv[1:]
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), folder).eval()
rows = []
for prompt, completion in json.load(sys.stdin):
    with torch.no_grad():
        logps = torch.log_softmax(model(torch.tensor([prompt + completion])).logits[0], -1)
    rows.append([float(logps[len(prompt) - 1 + i, token]) for i, token in enumerate(completion)])
print(json.dumps(rows))
"""


def run_python(code: str, *arguments: str, told: str = "") -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], input=told, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def adapters(plain: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("adapters")
    folders = {name: base / name for name in ("one", "two", "three")}
    run_python(_MAKE, str(plain.folder), *map(str, folders.values()))
    return folders


def _policy(plain: ServedModel, slug: str, folder: Path, **changes: Any) -> Policy:
    digest = weights_digest(folder)
    definition = {
        "slug": slug,
        "kind": "openai_compatible",
        "base_url": plain.url,
        "model": adapter_name(slug, digest),
        "checkpoint_digest": digest,
        "prompt_format": "completion",
        "sampling": {"max_tokens": 12, "logprobs": True},
        "options": {"adapter_path": str(folder), "base_model": plain.name, "max_retries": 1},
    }
    return Policy.model_validate(definition | changes)


def _listed(plain: ServedModel) -> list[str]:
    return [item["id"] for item in plain.get("/v1/models").json()["data"]]


@pytest.fixture(autouse=True)
def _empty(plain: ServedModel) -> Iterator[None]:
    yield
    for name in _listed(plain)[1:]:
        plain.post("unload_lora_adapter", {"lora_name": name})


def test_an_adapter_is_loaded_and_computes_what_peft_computes(plain: ServedModel, adapters: dict[str, Path]) -> None:
    policy = _policy(plain, "one", adapters["one"])
    assert _listed(plain) == [plain.name]
    with OpenAICompatible(policy) as client:
        found = client.identify()
        (result,) = client.sample([REQUEST])
    assert policy.model in _listed(plain)
    assert found.served is not None
    assert (found.served.digest_from, found.served.base_digest) == ("files", weights_digest(plain.folder))
    assert len(result.completions) == REQUEST.n
    own = ServedModel(plain.url, str(policy.model), plain.folder)
    answers = {m.name: m.complete(PROMPT, n=6, temperature=1.0)["choices"] for m in (plain, own)}
    assert [c["text"] for c in answers[plain.name]] != [c["text"] for c in answers[own.name]]
    asked = json.dumps([[plain.ids(PROMPT), plain.drawn(choice)] for choice in answers[own.name]])
    expected = json.loads(run_python(_SCORE, str(plain.folder), str(adapters["one"]), told=asked))
    found_values = [choice["logprobs"]["token_logprobs"] for choice in answers[own.name]]
    assert all(np.allclose(a, b, atol=TOLERANCE, rtol=0) for a, b in zip(found_values, expected, strict=True))
    of_base = [plain.reference.logprobs(*pair) for pair in json.loads(asked)]
    assert not np.allclose(np.concatenate(found_values), np.concatenate(of_base), atol=0.1, rtol=0)


def test_the_oldest_idle_adapter_is_unloaded_and_loaded_again(plain: ServedModel, adapters: dict[str, Path]) -> None:
    policies = {name: _policy(plain, name, folder) for name, folder in adapters.items()}
    clients = {name: OpenAICompatible(policy) for name, policy in policies.items()}
    answers = {name: client.sample([REQUEST])[0].completions for name, client in clients.items()}
    assert len(set(answers.values())) == 3
    assert len(_listed(plain)) == 1 + SLOTS
    assert policies["one"].model not in _listed(plain)
    # Unloaded outside of the client: the 404 makes the client load it again without an error.
    assert clients["one"].sample([REQUEST])[0].completions == answers["one"]
    assert policies["one"].model in _listed(plain)
    for client in clients.values():
        client.close()


def test_new_weights_in_the_same_folder_are_another_policy(
    plain: ServedModel, adapters: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(adapters["one"], tmp_path / "lora")
    policy = _policy(plain, "grown", folder)
    with OpenAICompatible(policy) as client:
        before = client.sample([REQUEST])[0].completions
        shutil.copy(adapters["two"] / "adapter_model.safetensors", folder)
        client.revalidate()
        with pytest.raises(PolicyUnavailableError, match="register the policy as a new version"):
            client.sample([REQUEST])
    renewed = _policy(plain, "grown", folder)
    assert renewed.model != policy.model
    assert renewed.digest != policy.digest
    with OpenAICompatible(renewed) as client:
        assert client.sample([REQUEST])[0].completions != before


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"adapter_path": "/nowhere/lora"}, "does not load the adapter /nowhere/lora"),
        ({"base_model": "other"}, "not the base model 'other'"),
    ],
)
def test_an_adapter_that_cannot_be_loaded_is_reported(
    plain: ServedModel, adapters: dict[str, Path], options: dict[str, str], says: str
) -> None:
    policy = _policy(plain, "one", adapters["one"])
    broken = policy.model_copy(update={"options": policy.options | options})
    with OpenAICompatible(broken) as client, pytest.raises(PolicyUnavailableError) as caught:
        client.identify()
    assert says in str(caught.value)


def test_a_server_without_runtime_loading_is_reported(chatty: ServedModel, adapters: dict[str, Path]) -> None:
    policy = _policy(chatty, "one", adapters["one"])
    with OpenAICompatible(policy) as client, pytest.raises(PolicyUnavailableError) as caught:
        client.ping()
    told = str(caught.value)
    assert all(words in told for words in ("it serves bytes, not the adapter one-", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"))
    refused = httpx.post(f"{chatty.url}/load_lora_adapter", json={}, trust_env=False)
    assert refused.status_code == 404
