"""Answers under a constraint: our grammar of edits, and regexes and grammars of users."""

from __future__ import annotations

import re
from typing import Any

import pytest

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import SampleRequest
from speciate.prompts.diff import read_edits
from speciate.testing.openai_contract import ServedModel
from speciate.testing.served_run import served_policy


def _sample(served: ServedModel, prompt: str, n: int, **changes: Any) -> list[tuple[str, str]]:
    request = SampleRequest(Prompt("", prompt), PolicyRole.PROPOSE, n, 7, seed_program="x = 1\n")
    with OpenAICompatible(served_policy(served.url, served.name, **changes)) as client:
        client.ping()
        (result,) = client.sample([request])
    return [(each.text, each.finish_reason) for each in result.completions]


def test_a_model_that_writes_noise_writes_edits_under_the_guide(chatty: ServedModel) -> None:
    given: dict[str, Any] = {"edit_format": "diff", "sampling": {"max_tokens": 1500, "temperature": 1.5}}
    free = _sample(chatty, "Improve x = 1.", 4, **given)
    assert all(not read_edits(text) for text, _ in free)
    guided = _sample(chatty, "Improve x = 1.", 8, **given, options={"guide": "diff"})
    ended = [text for text, reason in guided if reason == "stop"]
    assert ended
    for text in ended:
        groups = read_edits(text)
        assert groups
        assert all(edit.complete for edits in groups for edit in edits)


@pytest.mark.parametrize(
    ("guide", "shape"),
    [
        ({"regex": "( [0-5][0-9]){2,4}"}, r"( ?[0-5][0-9])( [0-5][0-9]){1,3}"),
        ({"grammar": 'root ::= " 00" (" 01" | " 02")+'}, r" ?00( 0[12])+"),
    ],
)
def test_a_constraint_of_the_users_own(plain: ServedModel, guide: dict[str, str], shape: str) -> None:
    answers = _sample(
        plain,
        "S00 .01 G02 .12 E22 <b9> <one>",
        8,
        sampling={"max_tokens": 24, "temperature": 2.0},
        options={"guide": guide},
    )
    assert all(re.fullmatch(shape, text) for text, reason in answers if reason == "stop")
    assert any(reason == "stop" for _, reason in answers)


def test_a_malformed_guide_and_a_server_without_any_are_refused(
    plain: ServedModel, embedded: dict[str, ServedModel]
) -> None:
    for served, guide, says in (
        (plain, {"regex": "("}, "unclosed group"),
        (embedded["maze-base"], {"regex": "[0-9]+"}, "structured_outputs is not supported by this server"),
    ):
        with pytest.raises(PolicyUnavailableError) as caught:
            _sample(served, "S00 <one>", 1, sampling={"max_tokens": 4}, options={"guide": guide})
        assert says in str(caught.value)
        assert "does not take the policy's guide" in str(caught.value)
