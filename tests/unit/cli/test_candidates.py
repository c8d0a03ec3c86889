"""Names of candidates on the command line."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from speciate.cli.candidates import resolve_candidate
from speciate.domain.errors import NotFoundError
from speciate.schema.runs import ActiveEvaluation


def test_a_candidate_under_evaluation_is_named_as_such() -> None:
    unit, begun = UUID(int=1), datetime.now(UTC)
    active = ActiveEvaluation(
        work_id=unit, kind="evaluate", candidates=(3, 5), worker="here", started_at=begun, seconds=9
    )

    def missing(number: int) -> None:
        raise NotFoundError(f"there is no candidate {number}.")

    run = SimpleNamespace(id=unit, candidate=missing, evaluations=lambda: [active])
    service: Any = SimpleNamespace(runs=SimpleNamespace(get=lambda _: run))
    with pytest.raises(NotFoundError, match=r"candidate 4 of run .* still being evaluated.*runs evaluations abc"):
        resolve_candidate(service, "abc/4")
    with pytest.raises(NotFoundError, match="there is no candidate 6"):
        resolve_candidate(service, "abc/6")
