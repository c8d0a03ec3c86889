"""Rollouts: what a policy was asked and what it answered."""

from __future__ import annotations

from fastapi import APIRouter

from service.api.schemas import RolloutId
from service.dependencies import StoresDep
from speciate.ports.records.candidates import RolloutDetail

router = APIRouter(prefix="/v1/rollouts", tags=["run records"])


@router.get("/{rollout_id}")
def get_rollout(rollout_id: RolloutId, stores: StoresDep) -> RolloutDetail:
    """Read a rollout with prompt and completion."""
    return stores.queries.rollout(rollout_id)
