"""Campaign records as a service returns them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from speciate.domain.campaign import WAITS_FOR_GRANT, Campaign
from speciate.domain.declaration import DeclarationState
from speciate.domain.run import RunState
from speciate.schema.declarations import CampaignProblem, CampaignRecord, SliceRecord
from tests.unit.client.fake_service import AT, RUN

DECLARED = Campaign.model_validate(
    {"slug": "sweep", "problems": ["a@1", "b@1", "c@1"], "policy": {"p@1": 1, "q@2": 3}, "evaluations": 200}
)
WAITS = CampaignProblem(
    problem="a@1", run_id=RUN, state=RunState.PAUSED, reason=WAITS_FOR_GRANT, granted=32, spent=32, slices=1,
    reached=("half",), unlocked=False, gap=8, chance=0.1,
)  # fmt: skip


def campaign(**values: Any) -> dict[str, Any]:
    problems = (
        WAITS,
        WAITS.model_copy(
            update={
                "problem": "b@1",
                "state": RunState.COMPLETED,
                "reached": ("both",),
                "unlocked": True,
                "chance": 0.0,
            }
        ),
        WAITS.model_copy(update={"problem": "c@1", "run_id": None, "state": None, "reached": (), "spent": 0, "gap": 0}),
    )
    record = CampaignRecord(
        id=UUID(int=9),
        slug=DECLARED.slug,
        declaration=DECLARED,
        digest=DECLARED.digest,
        state=DeclarationState.RUNNING,
        reason=None,
        created_at=AT,
        finished_at=None,
        spent=64,
        slices=2,
        unlocked=1,
        problems=problems,
    )
    return {**record.model_dump(mode="json"), **values}


def slice_record(**values: Any) -> dict[str, Any]:
    record = SliceRecord(
        ord=1, problem="a@1", evaluations=32, gap=0, chance=0.5, created_at=AT, spent=32, reached=("half",), closed=None
    )
    return {**record.model_dump(mode="json"), **values}
