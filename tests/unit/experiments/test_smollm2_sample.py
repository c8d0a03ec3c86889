"""Sampling base and adapters without a service: real prompts, parser and sandbox; the model's letters are given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.smollm2 import sample as sampling
from experiments.smollm2.plan import folder_name, held_out
from speciate.training.tasks.python import PythonTask
from tests.unit.inference.checkpoints import write_bytes

Sampling = Callable[[str, dict[str, list[str]]], list[dict[str, Any]]]

SOLUTIONS = {
    problem.slug: program
    for problem, (program,) in PythonTask(name="python-easy", most_steps=2).with_solutions("test", 3)
}


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampling:
    """Return a function that samples from a model which writes given answers, and returns the lines of results."""
    # Every test worker reads this file, and torch takes seconds to import.
    from speciate.training.models import load_model

    base = write_bytes(tmp_path / "base")
    tokenizer = load_model(base)[1]
    problems = held_out()[:3]
    monkeypatch.setattr(sampling, "held_out", lambda: problems)
    monkeypatch.setattr(sampling, "EVALUATIONS", 4)

    def run(arm: str, answers: dict[str, list[str]]) -> list[dict[str, Any]]:
        def write(_self: Any, prompts: list[str], rollouts: int, _most: int) -> list[list[int]]:
            assert all(prompt.endswith("[assistant] ```python\ndef solve(x):") for prompt in prompts)
            slugs = [problem.slug for prompt in prompts for problem in problems if problem.description in prompt]
            texts = [text for slug in slugs for text in answers[slug]]
            assert len(texts) == rollouts * len(prompts)
            return [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id, 7, 7] for text in texts]

        monkeypatch.setattr(sampling._Writer, "_write", write)
        sampling.sample(base, tmp_path / "out", arm, 0, gpu=False)
        path = tmp_path / "out" / "samples" / f"{folder_name(arm, 0)}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    return run


def _body(slug: str) -> str:
    """Return the solution as the model continues the prompt, which ends with the function's first line."""
    return SOLUTIONS[slug].partition("def solve(x):")[2] + "```"


def _more(slug: str) -> str:
    """Return the solution with what small models write after it."""
    return _body(slug).removesuffix("```").rstrip() + "\ndef other(x):\n    return ("


def test_answers_are_scored_and_unreadable_ones_have_no_vector(sampled: Sampling) -> None:
    slugs = list(SOLUTIONS)
    wrong, unreadable = "\n    return 'nothing'\n```", "\n    return (\n```"
    lines = sampled("base", {slug: [_body(slug), wrong, unreadable, _more(slug)] for slug in slugs})
    assert [line["problem"] for line in lines] == slugs
    for line in lines:
        solved, failed, nothing, ended = line["vectors"]
        assert set(solved) == {1.0}
        assert set(failed) == {0.0}
        assert nothing is None
        assert ended == solved
    # Words after the end are not counted, but for what ends the answer.
    written = [text for slug in slugs for text in (_body(slug), wrong, unreadable, _body(slug)[:-4] + "\ndef ")]
    assert sum(line["tokens"] for line in lines) == sum(map(len, written))


def test_answers_are_read_as_those_of_the_service(sampled: Sampling) -> None:
    short = min(SOLUTIONS, key=lambda slug: len(SOLUTIONS[slug]))
    complete = _body(short).removesuffix("```").rstrip()
    cut = (complete + "\n\nassert solve([1, 2, 3, 4, 5, 6")[:64]  # at the limit of tokens, here letters
    given = {slug: [_body(slug)] * 4 for slug in SOLUTIONS} | {short: [complete + "\n\nprint(solve(", cut, "", ""]}
    lines = {line["problem"]: line["vectors"] for line in sampled("base", given)}
    assert set(lines[short][0]) == set(lines[short][1]) == {1.0}


def test_an_interrupted_sampling_goes_on_with_the_missing_problems(
    sampled: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    slugs = list(SOLUTIONS)
    monkeypatch.setattr(sampling, "AT_ONCE", 1)
    with pytest.raises(KeyError):
        sampled("base", {slugs[0]: [_body(slugs[0])] * 4})
    lines = sampled("base", {slug: [_body(slug)] * 4 for slug in slugs[1:]})
    assert [line["problem"] for line in lines] == slugs
    assert all(set(vector) == {1.0} for line in lines for vector in line["vectors"])
