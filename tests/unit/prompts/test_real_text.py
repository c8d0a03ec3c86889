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
from speciate.problems.loader import bundled, load_problem
from speciate.prompts.parse import parse_completion

COMPLETIONS: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in Path(__file__).with_name("smollm2.jsonl").read_text("utf-8").splitlines()
]
SAMPLES: Final[list[dict[str, Any]]] = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "docs/evidence/readable.jsonl").read_text("utf-8").splitlines()
]
LEAST_READABLE: Final = 0.6


@pytest.mark.parametrize("sampled", COMPLETIONS, ids=lambda sampled: sampled["problem"])
def test_a_completion_is_read_or_refused_as_a_person_would(sampled: dict[str, Any]) -> None:
    problem = load_problem(bundled()[sampled["problem"]])
    policy = Policy(slug="p", kind="scripted", edit_format=sampled["edit"], answers_per_rollout=sampled["answers"])
    answers = parse_completion(
        sampled["text"], problem=problem, policy=policy, parent=problem.seed_program, finish_reason=sampled["finish"]
    )
    assert [answer.failure.reason if answer.failure else None for answer in answers] == [sampled["reason"]]


def test_most_completions_of_compact_prompts_are_readable() -> None:
    compact = [sampled["reason"] is None for sampled in COMPLETIONS if sampled["style"] == "compact"]
    assert sum(compact) >= LEAST_READABLE * len(compact)


@pytest.mark.parametrize("sampled", SAMPLES, ids=lambda sampled: f"{sampled['form']} {sampled['problem']}")
def test_the_declared_samples_are_read_as_published(sampled: dict[str, Any]) -> None:
    problem = load_problem(bundled()[sampled["problem"]])
    assert reasons(sampled["text"], problem, sampled["form"], sampled["finish"]) == sampled["reasons"]


def test_prefilled_prompts_reach_the_goal_of_readable_completions() -> None:
    readable = {form: [None in s["reasons"] for s in SAMPLES if s["form"] == form] for form in ("compact", "prefilled")}
    assert sum(readable["prefilled"]) >= LEAST_READABLE * len(readable["prefilled"]) > sum(readable["compact"])
