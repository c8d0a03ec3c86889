"""Completions of SmolLM2-135M for the bundled problems are read, or refused with the right reason.

``smollm2.jsonl`` holds them as sampled, from an earlier compact prompt, with the reason that the parser gave; a person
read some of the refused ones. The file guards against regressions, it does not measure the parser. The declared samples
are in ``docs/evidence/readable.jsonl``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from experiments.readable.__main__ import reasons
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.problems.loader import bundled, load_problem
from speciate.prompts.parse import parse_completion

LEAST_READABLE: Final = 0.6


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def completions() -> list[dict[str, Any]]:
    return lines(Path(__file__).with_name("smollm2.jsonl"))


@pytest.fixture(scope="module")
def samples() -> list[dict[str, Any]]:
    return lines(Path(__file__).parents[3] / "docs/evidence/readable.jsonl")


@pytest.fixture(scope="module")
def problems() -> dict[str, Problem]:
    found = {slug: load_problem(path) for slug, path in bundled().items()}
    # When the completions were sampled, the marked function had another name.
    packing = found["circle-packing-26"]
    seed = packing.seed_program.replace("circles()", "centres()")
    return {**found, packing.slug: packing.model_copy(update={"seed_program": seed})}


def reasons_of_completion(sampled: dict[str, Any], problem: Problem) -> list[str | None]:
    policy = Policy(slug="p", kind="scripted", edit_format=sampled["edit"], answers_per_rollout=sampled["answers"])
    answers = parse_completion(
        sampled["text"], problem=problem, policy=policy, parent=problem.seed_program, finish_reason=sampled["finish"]
    )
    return [answer.failure.reason if answer.failure else None for answer in answers]


def test_completions_are_read_or_refused_as_a_person_would(
    completions: list[dict[str, Any]], problems: dict[str, Problem]
) -> None:
    for sampled in completions:
        assert reasons_of_completion(sampled, problems[sampled["problem"]]) == [sampled["reason"]], sampled


def test_most_completions_of_compact_prompts_are_readable(completions: list[dict[str, Any]]) -> None:
    compact = [sampled["reason"] is None for sampled in completions if sampled["style"] == "compact"]
    assert sum(compact) >= LEAST_READABLE * len(compact)


def test_the_declared_samples_are_read_as_published(
    samples: list[dict[str, Any]], problems: dict[str, Problem]
) -> None:
    for sampled in samples:
        problem = problems[sampled["problem"]]
        assert reasons(sampled["text"], problem, sampled["form"], sampled["finish"]) == sampled["reasons"], sampled


def test_prefilled_prompts_reach_the_goal_of_readable_completions(samples: list[dict[str, Any]]) -> None:
    readable = {form: [None in s["reasons"] for s in samples if s["form"] == form] for form in ("compact", "prefilled")}
    assert sum(readable["prefilled"]) >= LEAST_READABLE * len(readable["prefilled"]) > sum(readable["compact"])
