"""Adapters on vLLM that are not what was trained, and what ``verify`` says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from speciate.domain.policy import Probe
from speciate.policies.verification import Verdict, Verification, verify
from tests.support.openai_contract import ServedModel
from tests.vllm.test_adapters import run_python

# The adapter "trained", its versions, another one, and what PEFT computes with the first.
_WRITE: Final = """
import json, sys, torch
from pathlib import Path
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from speciate.training.probe import trace
base, root, prompts = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
tokenizer, traces = AutoTokenizer.from_pretrained(base), {}
versions = {"trained": (1, 1, ""), "older": (1, 0.6, ""), "unscaled": (1, 0.25, ""), "partly": (1, 1, "layers.1."),
            "other": (2, 1, ""), "unused": (1, 0, "")}
for name, (seed, scale, only) in versions.items():
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=modules, task_type="CAUSAL_LM"))
    for key, weight in model.named_parameters():
        if "lora_B" in key:  # zero to begin with, so that an untrained adapter changes nothing
            torch.nn.init.normal_(weight, std=0.1)
            weight.data *= scale if only in key else 0
    model.save_pretrained(root / name)
    traces[name] = trace(model, tokenizer, prompts)
print(json.dumps({"prompts": prompts, "trained": traces["trained"], "base": traces["unused"]}))
"""
_PROMPTS: Final = (
    "S00 .01 G02 .12 E22 <b9> <one>",
    "S00 .01 .02 G12 E22 <b9> <one>",
    "S02 .01 D00 .12 E22 <b9> <one>",
    "S20 .21 G11 D02 E22 <b9> <one>",
)


@pytest.fixture(scope="module")
def lab(plain: ServedModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Probe, Path]:
    """The probe of a training, and the folder of its adapters."""
    root = tmp_path_factory.mktemp("verified")
    probe = run_python(_WRITE, str(plain.folder), str(root), json.dumps(_PROMPTS))
    return TypeAdapter(Probe).validate_json(probe), root


@pytest.fixture
def loaded(plain: ServedModel, lab: tuple[Probe, Path]) -> Iterator[Any]:
    """Load an adapter under a name; all are unloaded at the end."""
    names: list[str] = []

    def load(name: str, version: str) -> None:
        plain.post("load_lora_adapter", {"lora_name": name, "lora_path": str(lab[1] / version)}).raise_for_status()
        names.append(name)

    yield load
    for name in names:
        plain.post("unload_lora_adapter", {"lora_name": name})


def _verify(plain: ServedModel, probe: Probe, model: str, *others: str) -> Verification:
    def ask(body: Mapping[str, Any]) -> Mapping[str, Any]:
        return dict(plain.post("completions", dict(body)).json())

    verification = verify(probe, model, others, ask)
    assert verification is not None
    return verification


@pytest.mark.parametrize(
    ("version", "verdicts"),
    [
        ("trained", {Verdict.OK}),
        ("older", {Verdict.PART}),
        ("unscaled", {Verdict.PART, Verdict.OTHER}),
        ("partly", {Verdict.PART, Verdict.OTHER}),
        ("other", {Verdict.OTHER}),
        ("unused", {Verdict.BASE}),
    ],
)
def test_a_version_is_told_from_the_trained_weights(
    plain: ServedModel, lab: tuple[Probe, Path], loaded: Any, version: str, verdicts: set[Verdict]
) -> None:
    loaded("adapter", version)
    assert _verify(plain, lab[0], "adapter", plain.name).verdict in verdicts


def test_the_base_under_the_adapters_name_is_told(plain: ServedModel, lab: tuple[Probe, Path]) -> None:
    assert _verify(plain, lab[0], plain.name).verdict is Verdict.BASE


def test_new_weights_under_a_name_that_is_loaded_are_told(
    plain: ServedModel, lab: tuple[Probe, Path], loaded: Any
) -> None:
    """vLLM refuses the second load and goes on with the older weights."""
    loaded("adapter", "older")
    again = plain.post("load_lora_adapter", {"lora_name": "adapter", "lora_path": str(lab[1] / "trained")})
    assert again.status_code == 400
    assert _verify(plain, lab[0], "adapter", plain.name).verdict is Verdict.PART


def test_adapters_in_turn_raise_no_alarm(plain: ServedModel, lab: tuple[Probe, Path], loaded: Any) -> None:
    """vLLM's prefix cache keeps adapters apart, also where it holds the same prompts of another one."""
    loaded("adapter", "trained")
    loaded("another", "other")
    for _ in range(5):
        assert _verify(plain, lab[0], "adapter", "another", plain.name).verdict is Verdict.OK
        assert _verify(plain, lab[0], "another", "adapter", plain.name).verdict is Verdict.OTHER
