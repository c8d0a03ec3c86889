"""Records of projects, tokens, principals and the audit log."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from speciate.domain.access import Quota, Scope
from speciate.schema.base import Record


class QuotaUsage(Record):
    """Use of a project's quotas.

    Attributes:
        concurrent_runs: Runs that have not ended.
        evaluations: Evaluations of what was created today: the whole budget while it runs, then the amount spent.
        tokens: The same for policy tokens.
        resets_at: End of the day, when the daily quotas reset.
    """

    concurrent_runs: int
    evaluations: int
    tokens: int
    resets_at: datetime


class ProjectRecord(Record):
    """A project: a namespace with its own access rights and quotas."""

    id: UUID
    slug: str
    title: str
    quota: Quota
    created_at: datetime


class ProjectUsage(ProjectRecord):
    """A project with the use of its quotas."""

    used: QuotaUsage


class TokenRecord(Record):
    """A token without its secret.

    Attributes:
        name: Owner or purpose.
        prefix: First characters of the token.
        created_by: Principal that created it.
        last_used_at: Time of the last use, to the minute.
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
    """A new token.

    Attributes:
        token: The secret token. This is the only time that it is returned.
    """

    token: str


class AuditRecord(Record):
    """An audited request: any change, and any request with a refused token.

    Attributes:
        principal: ``operator``, ``local``, ``anonymous`` or ``token PREFIX NAME``.
        project: Name of the project, if the request concerned one.
        action: Method and route.
        object: Path parameters, and the ID of a created object.
        address: IP address of the client.
        status: HTTP status of the response.
    """

    id: UUID
    at: datetime
    principal: str
    project: str | None
    action: str
    object: str
    address: str
    status: int


class PrincipalRecord(Record):
    """The principal of a request."""

    name: str
    project: str
    scope: Scope
    all_projects: bool
