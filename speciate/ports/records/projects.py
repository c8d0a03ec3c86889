"""Projects, tokens and the audit log as they are read back."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from speciate.domain.access import Quota, Scope
from speciate.ports.records.base import Record


class QuotaUsage(Record):
    """What counts towards the quotas of a project.

    Attributes:
        concurrent_runs: Runs under way.
        evaluations: Of what was declared today: whole budgets of what goes on, else what was spent.
        tokens: The same of policy tokens.
        resets_at: When the day ends.
    """

    concurrent_runs: int
    evaluations: int
    tokens: int
    resets_at: datetime


class ProjectRecord(Record):
    """A project: what belongs together and is seen by the same people."""

    id: UUID
    slug: str
    title: str
    quota: Quota
    created_at: datetime


class ProjectUsage(ProjectRecord):
    """A project with what counts towards its quotas."""

    used: QuotaUsage


class TokenRecord(Record):
    """A token without its secret.

    Attributes:
        name: Whose it is, or what for.
        prefix: Its first characters.
        created_by: Who made it.
        last_used_at: To the minute.
    """

    id: UUID
    project: str
    name: str
    prefix: str
    scope: Scope
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewToken(TokenRecord):
    """A token that was just made.

    Attributes:
        token: The token itself. Nobody can read it again.
    """

    token: str


class AuditRecord(Record):
    """A request that was not a read, or whose token was refused.

    Attributes:
        who: ``operator``, ``local``, ``nobody`` or ``token PREFIX NAME``.
        project: Name of the project it was about, where there was one.
        action: Method and route.
        object: What the route was filled with, and what was made.
        address: Where it came from.
        status: HTTP status of the answer.
    """

    id: UUID
    at: datetime
    who: str
    project: str | None
    action: str
    object: str
    address: str
    status: int


class PrincipalRecord(Record):
    """Who the service takes the sender of a request for."""

    who: str
    project: str
    scope: Scope
    all_projects: bool
