"""Constrained output: the grammar of edits, and custom regexes and grammars."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import Any

import pytest

from speciate.domain.errors import PolicyUnavailableError
from speciate.domain.policy import PolicyRole
from speciate.domain.rollout import Prompt
from speciate.policies.openai_compatible import OpenAICompatible
from speciate.ports.policy import SampleRequest
from speciate.prompts.diff import DIFF_GRAMMAR, read_edits
from tests.support.openai_contract import ServedModel
from tests.support.served_run import served_policy
from tests.vllm.servers import PYTHON_VARIABLE


def _sample(served: ServedModel, prompt: str, n: int, **changes: Any) -> list[tuple[str, str]]:
    request = SampleRequest(Prompt("", prompt), PolicyRole.PROPOSE, n, 7, seed_program="x = 1\n")
    with OpenAICompatible(served_policy(served.url, served.name, **changes)) as client:
        client.ping()
        (result,) = client.sample([request])
    return [(each.text, each.finish_reason) for each in result.completions]


# In vLLM's environment, which has the grammar engine that vLLM uses.
_ACCEPTS = """
import json, sys
from xgrammar.testing import _is_grammar_accept_string
grammar, texts = json.load(sys.stdin)
print(json.dumps([_is_grammar_accept_string(grammar, text) for text in texts]))
"""
_EDIT = "<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n"
_ADDED = "# === file: a.py ===\n<<<<<<< SEARCH\n=======\ny = 1\n>>>>>>> REPLACE\n"
_DOCTEST = "<<<<<<< SEARCH\n    >>> f(1)\n    == 2\n\n=======\n  << 3\n>>>>>>> REPLACE\n"
ACCEPTED = [_EDIT, f"I change x.\n\n{_EDIT}", f"{_EDIT}---\n{_EDIT}", _EDIT + _EDIT + "Done.\n", _ADDED, _DOCTEST]
REFUSED = [
    "",
    "No edit at all.\n",
    "```python\nx = 2\n```\n",
    _EDIT.replace("=======\n", ""),
    _EDIT.replace("=======", "===== = "),
    _EDIT.replace(">>>>>>> REPLACE\n", ""),
    _EDIT.replace("SEARCH", "FIND"),
    _EDIT.replace("x = 1\n", "x = 1\n<<<<<<< SEARCH\n"),
]


def test_the_grammar_of_edits_accepts_what_our_parser_accepts() -> None:
    asked = json.dumps([DIFF_GRAMMAR, ACCEPTED + REFUSED])
    python = os.environ[PYTHON_VARIABLE]
    done = subprocess.run([python, "-c", _ACCEPTS], input=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == [True] * len(ACCEPTED) + [False] * len(REFUSED)
    for text in ACCEPTED:
        assert all(edit.complete for edits in read_edits(text) for edit in edits)
        assert read_edits(text)


def test_a_random_model_writes_edits_under_the_guide(chatty: ServedModel) -> None:
    given: dict[str, Any] = {"edit_format": "diff", "sampling": {"max_tokens": 1500, "temperature": 1.5}}
    assert not any(read_edits(text) for text, _ in _sample(chatty, "Improve x = 1.", 4, **given))
    for text, reason in _sample(chatty, "Improve x = 1.", 4, **given, options={"guide": "diff"}):
        assert reason == "length"  # random tokens never form a block, and the guide allows no end without one
        assert not re.search(r"^[ \t]*([<=>])\1{4}", text, re.MULTILINE)
    # The same grammar with few and short lines between the markers, so that random tokens reach them.
    short = DIFF_GRAMMAR.replace("line*", "line{0,2}").replace("[^\\n]*", "[^\\n]{0,5}")
    assert short != DIFF_GRAMMAR
    guided = _sample(chatty, "Improve x = 1.", 8, **given, options={"guide": {"grammar": short}})
    ended = [text for text, reason in guided if reason == "stop"]
    assert ended
    for text in ended:
        groups = read_edits(text)
        assert groups
        assert all(edit.complete for edits in groups for edit in edits)


@pytest.mark.parametrize(
    ("guide", "shape"),
    [
        # The grammar engine concatenates this model's tokens without the spaces between them.
        ({"regex": "([0-5][0-9]){2,4}"}, r"( ?[0-5][0-9]){2,4}"),
        ({"grammar": 'root ::= "00" ("01" | "02")+'}, r" ?00( 0[12])+"),
    ],
)
def test_a_custom_constraint(plain: ServedModel, guide: dict[str, str], shape: str) -> None:
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
        assert "the policy's guide" in str(caught.value)
