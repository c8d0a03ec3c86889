"""The audit log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service.dependencies import Cursor, Limit, StoresDep
from service.principal import NeedsAdmin, PrincipalDep
from speciate.ports.records.base import Page
from speciate.ports.records.projects import AuditRecord

router = APIRouter(prefix="/v1/audit", tags=["access"], dependencies=[NeedsAdmin])


@router.get("")
def list_audit(
    stores: StoresDep,
    principal: PrincipalDep,
    everything: Annotated[
        bool, Query(description="of all projects, and of whoever was refused; only the operator's token reads it")
    ] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[AuditRecord]:
    """Read who asked for what in the project, newest first: requests that were no reads."""
    if everything:
        principal.require_all_projects()
    return stores.audit.list(project=None if everything else principal.project_id, limit=limit, cursor=cursor)
