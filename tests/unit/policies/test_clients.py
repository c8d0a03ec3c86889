from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from speciate.domain.errors import InvalidInputError
from speciate.domain.policy import EXTERNAL, Policy, PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies import KINDS, build_client, policy_kind
from speciate.policies.kind import PROMPTS
from speciate.ports.policy import SampleRequest


def policy(kind: str, **options: Any) -> Policy:
    address = None if kind == "embedded" else "http://127.0.0.1/v1"
    return Policy(slug="p", kind=kind, options=options, base_url=address, model="m")


def test_an_unknown_kind_lists_the_known_ones() -> None:
    with pytest.raises(
        InvalidInputError,
        match=r"unknown kind 'gpt'.*command, embedded, external, openai_compatible, polish, program_mutator, scripted",
    ):
        build_client(policy("gpt"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != EXTERNAL])
def test_an_unknown_option_lists_the_valid_ones_with_defaults(kind: str) -> None:
    with pytest.raises(InvalidInputError, match=r"options\.wrong.*Options: \w+: .*default ") as caught:
        build_client(policy(kind, wrong=1))
    assert "options.wrong" in [field_error.where for field_error in caught.value.field_errors]


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("program_mutator", {"crossover": 2}, "less than or equal to 1"),
        ("program_mutator", {"sigma_low": 1.0, "sigma_high": 0.1}, "expected at most sigma_high"),
        ("scripted", {}, "either completions"),
        ("scripted", {"completions": ["a"], "template": "b"}, "either completions"),
        ("openai_compatible", {"max_retries": -1}, "greater than or equal to 0"),
    ],
)
def test_an_option_out_of_range_names_the_range(kind: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        build_client(policy(kind, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_that_read_what_a_model_needs_ask_one(kind: str) -> None:
    assert Policy(slug="p", kind=kind).asks_model == (policy_kind(kind).fields >= PROMPTS)


def test_the_mutator_needs_no_http_client() -> None:
    code = (
        "import sys; from speciate.domain.policy import Policy; from speciate.policies import build_client;"
        "build_client(Policy(slug='p', kind='program_mutator')); sys.exit('httpx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def sample(seed: int, n: int, **options: Any) -> list[str]:
    request = SampleRequest(Prompt("", ""), PolicyRole.PROPOSE, n, seed)
    return [
        completion.text for completion in build_client(policy("scripted", **options)).sample([request])[0].completions
    ]


def test_cycle_order_depends_on_the_seed() -> None:
    assert sample(0, 4, completions=["a", "b", "c"]) == ["a", "b", "c", "a"]
    assert sample(4, 2, completions=["a", "b", "c"]) == ["b", "c"]


def test_seed_order_draws_by_the_seed() -> None:
    drawn = sample(0, 100, completions=["a", "b"], order="seed")
    assert drawn == sample(0, 100, completions=["a", "b"], order="seed")
    assert 20 < drawn.count("a") < 80


def test_a_template_gives_different_programs() -> None:
    texts = [text for seed in range(50) for text in sample(seed, 4, template="x = {number} + {number} + {other}")]
    assert len(set(texts)) == 200
    assert all("{other}" in text and "{number}" not in text for text in texts)
