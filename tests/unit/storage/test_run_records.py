"""What a run's record says of its best candidate."""

from __future__ import annotations

from typing import Any

import pytest

from speciate.storage.runs.records import _compared


@pytest.mark.parametrize(("number", "text"), [(1, "seconds 3 (as the seed)"), (2, "seconds 3 (seed 2, 1 worse)")])
def test_the_seed_program_is_not_worse_than_itself(number: int, text: str) -> None:
    objective = {"name": "seconds", "direction": "minimize", "role": "objective"}
    document: dict[str, Any] = {"best_id": "x", "best_number": number, "best": [3.0], "seed_rewards": [2.0]}
    document |= {"objectives": [objective], "targets": [], "final": {}}  # evaluations after the end gave 3
    (compared,) = _compared(document)
    assert str(compared) == text
