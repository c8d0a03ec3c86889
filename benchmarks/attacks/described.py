"""Call every operation of the OpenAPI document with valid and invalid requests, using schemathesis."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

DESCRIPTION = Path(__file__).parents[2] / "docs" / "openapi.json"
CONFORMS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def ask_everything(url: str, *, examples: int, known: Mapping[str, str], seed: int = 0) -> Counter[int]:
    """Ask every operation; return how often each status was answered.

    Args:
        url: Address of the service.
        examples: Requests of each kind (fitting, not fitting) for each operation.
        known: Values of path parameters that exist; every second request uses them.
        seed: Chooses the requests.

    Raises:
        AssertionError: An answer is a failure of the service's, or not as described.
    """
    statuses: Counter[int] = Counter()
    failures: list[str] = []
    for found in schemathesis.openapi.from_path(str(DESCRIPTION)).get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                failures += _ask(url, operation.as_strategy(mode), examples, known, seed, statuses)
            except hypothesis.errors.Unsatisfiable:
                continue  # nothing is wrong with a request without parameters
    assert not failures, f"{len(failures)} answers are not as described:\n" + "\n\n".join(failures)
    return statuses


def _ask(url: str, cases: Any, examples: int, known: Mapping[str, str], seed: int, statuses: Counter[int]) -> list[str]:
    turns = itertools.count()
    failures: list[str] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(case=cases)
    def ask(case: Any) -> None:
        if next(turns) % 2:
            there = {name: known[name] for name in case.path_parameters or {} if name in known}
            case.path_parameters = {**(case.path_parameters or {}), **there}
        answer = case.call(base_url=url, timeout=30)
        statuses[answer.status_code] += 1
        if wrong := _wrong(case, answer):
            asked = f"{answer.request.method} {answer.request.url} with {str(case.body)[:300]}"
            failures.append(f"{asked} -> {answer.status_code} {answer.text[:300]}\n{wrong}")

    ask()
    return failures


def _wrong(case: Any, answer: Any) -> str | None:
    """Return what is wrong with an answer, or None."""
    if answer.status_code >= 500 and not (case.path.endswith(":ping") and answer.status_code == 503):
        return "a failure of the service's"
    if answer.status_code >= 400:
        if answer.headers["content-type"] != ["application/problem+json"]:
            return f"no problem details: {answer.headers['content-type']}"
        if answer.json()["status"] != answer.status_code:
            return "another status in its problem details"
    try:
        case.validate_response(answer, checks=CONFORMS)
    except (Failure, FailureGroup) as error:
        return str(error)[:1500]
    return None
