"""Bundled policies: the engine computes the log-probabilities that transformers computes."""

import numpy as np
import pytest

from experiments.generation import generate
from speciate.inference.engine import Engine
from speciate.policies.bundled import checkpoints

torch = pytest.importorskip("torch", reason="needs the extra 'train'")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", sorted(checkpoints()))
def test_log_probabilities_are_those_of_transformers(name):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = checkpoints()[name]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "x1 y3 x4 y3 x9 y0 <one>" if name.startswith("programs") else "S00 .01 G02 .12 E22 <b9> <one>"
    prompt = tokenizer(text)["input_ids"]
    assert tokenizer.unk_token_id not in prompt
    (sampled,) = generate(Engine.load(folder), [prompt], n=8, max_tokens=24, seeds=[1])
    for one in sampled:
        ids = torch.tensor([[*prompt, *one.token_ids]])
        with torch.no_grad():
            logps = torch.log_softmax(model(ids).logits[0], -1)
        expected = [float(logps[len(prompt) - 1 + i, token]) for i, token in enumerate(one.token_ids)]
        assert np.allclose(one.logprobs, expected, atol=1e-4)
