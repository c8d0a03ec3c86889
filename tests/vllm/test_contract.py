"""vLLM passes the contract of the inference server, and both compute the same results."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.openai_contract import TOLERANCE, OpenAIContract, ServedModel


class TestVllm(OpenAIContract):
    @pytest.fixture
    def plain(self, plain: ServedModel) -> ServedModel:
        return plain

    @pytest.fixture
    def chatty(self, chatty: ServedModel) -> ServedModel:
        return chatty


@pytest.mark.parametrize("seed", range(4))
def test_both_servers_give_the_same_tokens_the_same_logprobs(
    plain: ServedModel, embedded: dict[str, ServedModel], seed: int
) -> None:
    ours = embedded["maze-base"]
    prompt = plain.ids(f"S60 .50 .40 G41 .31 .21 E20 <b{9 + seed}> <one>")
    largest = 0.0
    for choice in ours.complete(prompt, n=4, seed=seed)["choices"]:
        drawn = ours.drawn(choice)
        for place, expected in enumerate(choice["logprobs"]["token_logprobs"]):
            (at,) = plain.complete([*prompt, *drawn[:place]], max_tokens=1, logprobs=20)["choices"]
            token = plain.tokenizer.id_to_token(drawn[place])
            if (found := at["logprobs"]["top_logprobs"][0].get(token)) is not None:
                largest = max(largest, abs(found - expected))
    assert 0 < largest <= TOLERANCE
    print(f"largest difference between the servers: {largest:.1e}")  # noqa: T201


def test_both_servers_choose_the_same_likeliest_tokens(plain: ServedModel, embedded: dict[str, ServedModel]) -> None:
    for budget in range(5, 21):
        prompt = f"S00 .01 G02 .12 .22 E23 <b{budget}> <one>"
        (one,), (other,) = (s.complete(prompt, temperature=0)["choices"] for s in (plain, embedded["maze-base"]))
        assert plain.drawn(one) == plain.drawn(other)
        values = (choice["logprobs"]["token_logprobs"] for choice in (one, other))
        assert np.allclose(*values, atol=TOLERANCE, rtol=0)
